"""One attempt at a task: who would start it again if it died, and whether that has happened already.

Airflow's retries are for deaths that nobody announced: what a task itself says of its end is final.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.configuration import conf
from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
from airflow.sdk.exceptions import AirflowRuntimeError
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import CommsDecoder

from scaleout.plan.resolve import UNATTENDED_LEASE_S

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

RETRIES: dict[str, Any] = {
    "retries": 20,
    "retry_delay": timedelta(seconds=5),
    "retry_policy": ExceptionRetryPolicy(
        rules=[RetryRule(AirflowRuntimeError, RetryAction.RETRY, reason="the API server did not do its part")],
        default=RetryAction.FAIL,
    ),
}
LEAST_LEASE_S, LEASE_PER_NOTICE = 600.0, 2.0
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
MARK = "scaleout_attempt"

End = Literal["stopped", "cleared", "superseded"]


def under_scheduler() -> bool:
    """Whether this task has a supervising process, and so somebody who starts it again; under `dags test` it has not."""
    return isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), CommsDecoder)


def lease_s() -> float:
    """How long a gang must go on by itself until the next attempt has come: twice the time that Airflow may take to notice.

    It notices a task without heartbeats, and the tasks of a scheduler without heartbeats, at different intervals.
    """
    if not under_scheduler():
        return UNATTENDED_LEASE_S
    notices = ("task_instance_heartbeat_timeout", "orphaned_tasks_check_interval")
    return max(LEAST_LEASE_S, LEASE_PER_NOTICE * max(conf.getfloat("scheduler", name) for name in notices))


@dataclass(frozen=True)
class Attempt:
    """`store` is Airflow's task state store, which answers only to the attempt that Airflow holds to be the current one."""

    instance: Any
    store: Any

    @classmethod
    def begin(cls, context: Context) -> Attempt:
        """Under a scheduler the attempt dies with the process that supervises it: without that it could tell nothing."""
        attempt = cls(context["ti"], context["task_state_store"] if under_scheduler() else None)
        if attempt.store is not None:
            _die_with_parent()
            attempt.store.set(MARK, True)
        return attempt

    @property
    def order(self) -> int:
        """Grows when a person clears the task, and not when Airflow tries it again."""
        number: int = self.instance.max_tries
        return number

    def why_ended(self) -> End:
        """Why Airflow asks the attempt to end. No answer is taken for a death too: nobody can have asked through a dead API."""
        if self.store is None:
            return "stopped"
        with contextlib.suppress(Exception):
            if self.store.get(MARK):
                return "stopped"
            task = self.instance
            states = task.get_task_states(dag_id=task.dag_id, task_ids=[task.task_id], run_ids=[task.run_id])
            if states[task.run_id][task.task_id] == "restarting":
                return "cleared"
        return "superseded"


@contextmanager
def telling() -> Iterator[None]:
    """While Airflow is told something. Under a scheduler, a process that is not heard any more dies here.

    The kernel closes a dying supervisor's descriptors first, and ends its task a moment later: what is told in between would
    be an error of the task, for which it would stop its gang, and not the death that it is.
    """
    try:
        yield
    except ConnectionError:
        if under_scheduler():
            os.kill(os.getpid(), signal.SIGKILL)
        raise


def _die_with_parent() -> None:
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
