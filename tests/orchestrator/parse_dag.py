"""Parses dags/ as Airflow's DAG processor does, once per line of JSON on stdin (environment changes); prints what it found."""

import json
import os
import sys
import warnings

warnings.simplefilter("ignore")

from airflow.dag_processing.dagbag import DagBag  # noqa: E402
from airflow.sdk.exceptions import AirflowTaskTimeout  # noqa: E402

OWN_ENDS = (SystemExit(1), ValueError(), AirflowTaskTimeout())
HEAVY = ("matplotlib", "torch", "torchvision", "pandas", "numpy", "scipy")


def parsed(dags: str) -> dict[str, object]:
    bag = DagBag(dags)
    return {
        "errors": bag.import_errors,
        "dags": {
            name: {
                "tasks": {task_id: described(task) for task_id, task in dag.task_dict.items()},
                "schedule": dag.schedule,
                "max_active_runs": dag.max_active_runs,
                "form": sorted(dag.params),
            }
            for name, dag in bag.dags.items()
        },
        "heavy": [name for name in HEAVY if name in sys.modules],
        "ours": sorted(name for name in sys.modules if name.split(".")[0] in ("scaleout", "training")),
    }


def described(task: object) -> dict[str, object]:
    return {
        "rule": str(task.trigger_rule.value),
        "upstream": sorted(task.upstream_task_ids),
        "teardown": task.is_teardown,
        "fails_the_run": task.on_failure_fail_dagrun,
        "setup": task.is_setup,
        "retries": task.retries,
        "retry_delay_s": task.retry_delay.total_seconds(),
        "retried_after": {
            type(e).__name__: task.retry_policy.evaluate(e, 1, task.retries).action.value for e in OWN_ENDS
        },
        "sentence": getattr(task, "sentence", None),
    }


for line in sys.stdin:
    os.environ.update(json.loads(line))
    print("found " + json.dumps(parsed(sys.argv[1])), flush=True)
