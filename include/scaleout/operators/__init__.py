"""Airflow operators: each runs one step. With dags/ and plugins/ the only place that imports airflow."""
