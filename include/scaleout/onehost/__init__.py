"""A sweep over the GPUs of one host: the project's own supervisor over pipes, without SSH and without Airflow."""
