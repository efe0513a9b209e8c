"""When the DAG runs by itself."""

from __future__ import annotations

from airflow.sdk import CronTriggerTimetable

from scaleout.config.cluster import Cluster
from scaleout.errors import ConfigError, ScaleoutError
from scaleout.plan.resolve import resolve
from scaleout.steps.nightly import conf_of


def nightly_schedule(cluster: Cluster) -> CronTriggerTimetable | None:
    """The cluster's nightly time, or None. Raises ConfigError when its sweep could not be planned."""
    if cluster.nightly is None:
        return None
    try:
        resolve(run_id="nightly", conf=conf_of(cluster), cluster=cluster, created_at="not started")
    except ScaleoutError as error:
        raise ConfigError(f"nightly_form of the cluster {cluster.name}: {error}") from None
    return CronTriggerTimetable(cluster.nightly, timezone=cluster.timezone)
