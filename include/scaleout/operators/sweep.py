"""The tasks of a whole sweep."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from scaleout.config import files
from scaleout.config.cluster import Cluster
from scaleout.errors import ConfigError, FleetError
from scaleout.operators.attempt import lease_s
from scaleout.operators.base import SweepOperator
from scaleout.results.store import SWEEP_FILE
from scaleout.steps import cluster_lock, compile_results, deploy, nightly, plan, preflight, prepare_data
from scaleout.steps.settle import settle_all

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

SCHEDULED = "scheduled"


class RefuseOperator(SweepOperator):
    """Stands in for the DAG of a cluster whose file is wrong: fails with the sentence that says what is wrong."""

    def __init__(self, *, sentence: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sentence = sentence

    def do(self, context: Context) -> None:
        raise ConfigError(self.sentence)


class PlanOperator(SweepOperator):
    """plan: validates the raw form and writes `sweep.json`. Returns where it lies.

    A scheduled run has no form of its own and takes the cluster's; one that comes too late skips every other task, unless a
    person has cleared it.
    """

    def __init__(self, *, cluster: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cluster = cluster

    def do(self, context: Context) -> dict[str, Any]:
        cluster, dag_run = files.load_cluster(self.cluster), context["dag_run"]
        # The form of the UI shows an array that nobody has filled as `[]`.
        conf = {key: value for key, value in (dag_run.conf or {}).items() if value not in (None, [])}
        if dag_run.run_type == SCHEDULED:
            if not dag_run.clear_number:
                self._skip_if_too_late(cluster, dag_run.run_after)
            conf = nightly.conf_of(cluster)
        sweep = plan.plan(context["run_id"], conf, cluster, lease_s(), self.say)
        return {
            "sweep": str(self._store.folder / SWEEP_FILE),
            "trials": len(sweep.trials),
            "hours": round(sweep.estimated_h, 3),
        }

    def _skip_if_too_late(self, cluster: Cluster, due_at: datetime) -> None:
        sentence = nightly.too_late(cluster, due_at, datetime.now(UTC))
        if sentence:
            self.say(sentence)
            raise DownstreamTasksSkipped(tasks=sorted(self.get_flat_relative_ids(upstream=False)))


class LockOperator(SweepOperator):
    """lock: takes the cluster for this run."""

    def do(self, context: Context) -> None:
        self.run(cluster_lock.take(self.session()))


class PreflightOperator(SweepOperator):
    """preflight: asks every node and the array what they are."""

    def do(self, context: Context) -> None:
        self.run(preflight.preflight(self.session()))


class DeployOperator(SweepOperator):
    """deploy: brings the release to every node."""

    def do(self, context: Context) -> None:
        self.run(deploy.deploy(self.session()))


class PrepareDataOperator(SweepOperator):
    """prepare_data: converts the data set and brings it to its size, and lets the trials begin."""

    def do(self, context: Context) -> None:
        self.run(prepare_data.prepare_data(self.session()))


class CompileResultsOperator(SweepOperator):
    """compile_results: the table, the files; fails when a trial is missing."""

    def do(self, context: Context) -> dict[str, str]:
        try:
            self.run(settle_all(self.session()))
        except FleetError as error:
            self.say(str(error))
        compile_results.compile_sweep(self._store, self.say)
        return {"results": str(self._store.folder)}


class UnlockOperator(SweepOperator):
    """unlock: gives the cluster back, whatever happened, when nothing of the sweep runs there any more."""

    def do(self, context: Context) -> None:
        if not (self._store.folder / SWEEP_FILE).exists():
            raise AirflowSkipException("there was no plan, so nothing was locked")
        session = self.session()
        self.run(settle_all(session))
        self.run(cluster_lock.give_back(session))
