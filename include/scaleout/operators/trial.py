"""The tasks of one trial slot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowSkipException, DownstreamTasksSkipped

from scaleout.errors import ConfigError
from scaleout.operators.base import TrialOperator
from scaleout.steps import collect, empty_caches, launch

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context


class GateOperator(TrialOperator):
    """gate: lets a trial through that the sweep asks for, when its data is ready and nobody has stopped it.

    Otherwise the slot's other tasks are skipped, all at once: a skip that walks from task to task costs `airflow dags test`
    a second per step.
    """

    def do(self, context: Context) -> None:
        reason = self._why_closed()
        if reason is not None:
            self.say(f"{self.key}: {reason}")
            slot = self.task_id.removesuffix("gate")
            raise DownstreamTasksSkipped(tasks=[f"{slot}{name}" for name in ("empty_caches", "launch", "collect")])

    def _why_closed(self) -> str | None:
        try:
            sweep = self._store.sweep()
        except ConfigError as error:
            return str(error)
        if sweep.trial(self.key) is None:
            return "not asked for"
        return sweep.stopped or (None if sweep.ready else "the sweep did not get ready")


class EmptyCachesOperator(TrialOperator):
    """empty_caches: sync, array flush, page caches of every node; with evidence."""

    def do(self, context: Context) -> None:
        session = self.session()
        self.run(empty_caches.empty_caches(session, self.trial(session)))


class LaunchOperator(TrialOperator):
    """launch: runs the gang to its end; one that an earlier attempt left running is picked up."""

    def do(self, context: Context) -> None:
        session = self.session()
        self.run(launch.launch(session, self.trial(session), self._attempt.order))


class CollectOperator(TrialOperator):
    """collect: fetches what the nodes wrote, also of a gang that failed, and computes the trial's row."""

    def do(self, context: Context) -> None:
        session = self.session()
        told = self.run(collect.collect(session, self.trial(session)))
        if told is None:
            raise AirflowSkipException(f"{self.key}: was not launched")
        self.say(told)
