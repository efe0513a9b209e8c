"""What all tasks of a sweep share: they find its folder, run asynchronously, and can be stopped at any moment."""

from __future__ import annotations

import asyncio
import sys
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator

from scaleout.errors import ScaleoutError
from scaleout.operators.connections import targets_of
from scaleout.plan.sweep import Trial
from scaleout.results.store import SweepStore
from scaleout.steps.session import Session
from training.wire.names import CacheMode, TrialKey

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

STOPPED = 130  # what a shell reports for a command that Ctrl-C ended


class SweepOperator(BaseOperator):
    """A task of a sweep.

    Ctrl-C, SIGTERM and "mark failed" cancel its work, which ends what it started on the nodes; the sweep is then marked
    stopped, so that no later trial starts. A ScaleoutError fails the task with its sentence.
    """

    ui_color = "#e4eef7"
    _running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def execute(self, context: Context) -> Any:
        self._store = SweepStore(context["run_id"])
        try:
            return self.do(context)
        except ScaleoutError as error:
            self._fail(str(error), error.exit_code)
        except (KeyboardInterrupt, asyncio.CancelledError):
            self._mark_stopped()
            self._fail(f"stopped on request in {self.task_id}; no later trial will start", STOPPED)

    @abstractmethod
    def do(self, context: Context) -> Any:
        """The task's work. Raises ScaleoutError."""

    def on_kill(self) -> None:
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(task.cancel)

    def session(self) -> Session:
        sweep = self._store.sweep()
        return Session(self._store, sweep, targets_of(sweep.cluster), self.say)

    def run(self, work: Any) -> Any:
        """Runs a coroutine to its end, such that `on_kill` can cancel it."""

        async def held() -> Any:
            task = asyncio.current_task()
            assert task is not None
            self._running = (asyncio.get_running_loop(), task)
            try:
                return await work
            finally:
                self._running = None

        return asyncio.run(held())

    def say(self, text: str) -> None:
        for line in text.splitlines():
            self.log.info("%s", line)

    def _fail(self, sentence: str, exit_code: int) -> NoReturn:
        """Fails the task with the sentence alone: Airflow prints a traceback for an exception, and none for an exit."""
        for line in sentence.splitlines():
            self.log.error("%s", line)
        sys.exit(exit_code)

    def _mark_stopped(self) -> None:
        try:
            self._store.update(stopped=f"the sweep was stopped in {self.task_id}")
        except ScaleoutError as error:  # stopped before there was a plan: then nothing can start either
            self.log.warning("%s", error)


class TrialOperator(SweepOperator):
    """A task of one trial slot, named by round, workload, node count and cache mode."""

    def __init__(self, *, round_: int, workload: str, nodes: int, cache_mode: CacheMode, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.round_, self.workload, self.nodes, self.cache_mode = round_, workload, nodes, cache_mode

    @property
    def key(self) -> TrialKey:
        return TrialKey(self.round_, self.workload, self.nodes, self.cache_mode)

    def trial(self, session: Session) -> Trial:
        trial = session.sweep.trial(self.key)
        assert trial is not None, f"{self.key} passed its gate without being in the plan"
        return trial
