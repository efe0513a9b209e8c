"""The steps of a sweep, one module each, in the order of the DAG. No Airflow here: operators and commands call these."""
