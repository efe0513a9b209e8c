"""What runs on a node. Copied there as a release; never imports airflow or scaleout."""
