"""`scaleout`: the same rooms without Airflow."""
