"""What all tasks of a sweep share: they find its folder, run asynchronously, and can be stopped at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseOperator

from scaleout.errors import STOPPED, ScaleoutError
from scaleout.operators.attempt import Attempt, End, telling, under_scheduler
from scaleout.operators.connections import targets_of
from scaleout.plan.sweep import Trial
from scaleout.results.store import SweepStore
from scaleout.steps.session import Session
from training.wire.names import CacheMode, TrialKey

if TYPE_CHECKING:
    from airflow.sdk.definitions.context import Context

SUPERSEDED = 1
ANSWER_LIMIT_S = 3.0  # Airflow kills a task five seconds after it has asked it to end


class SweepOperator(BaseOperator):
    """A task of a sweep.

    Ctrl-C, SIGTERM and "mark failed" cancel its work, which ends what it started on the nodes; the sweep is then marked
    stopped, so that no later trial starts. So does "clear", and the sweep goes on. A ScaleoutError fails the task with its
    sentence, and so does a time limit that Airflow was given for the task. A task that Airflow ends since another attempt at it
    has begun leaves the nodes to that one.
    """

    ui_color = "#e4eef7"
    _running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
    _ending: asyncio.Task[None] | None = None
    _timed_out = _cleared = False

    def execute(self, context: Context) -> Any:
        self._store = SweepStore(context["run_id"])
        self._attempt = Attempt.begin(context)
        try:
            return self.do(context)
        except ScaleoutError as error:
            self._fail(str(error), error.exit_code)
        except (KeyboardInterrupt, asyncio.CancelledError):
            if self._timed_out:
                self._fail(f"{self.task_id}: {self._over_time()}", 1)
            if self._cleared:
                self._fail(f"{self.task_id} was cleared, and begins anew", STOPPED)
            self._mark_stopped()
            self._fail(f"stopped on request in {self.task_id}; no later trial will start", STOPPED)

    @abstractmethod
    def do(self, context: Context) -> Any:
        """The task's work. Raises ScaleoutError."""

    def on_kill(self) -> None:
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(self._end, loop, task)
        elif not under_scheduler():
            self._mark_stopped()  # `dags test` has this called until the next task begins, and would go on

    def _end(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        self._ending = loop.create_task(self._end_as_asked(task))

    async def _end_as_asked(self, task: asyncio.Task[Any]) -> None:
        why: End = "superseded"
        with contextlib.suppress(TimeoutError):
            why = await asyncio.wait_for(asyncio.to_thread(self._attempt.why_ended), ANSWER_LIMIT_S)
        if why == "superseded":
            self.log.warning("this attempt at %s is over: its gang, if it has one, is left to the next", self.task_id)
            os._exit(SUPERSEDED)
        self._cleared = why == "cleared"
        if not self._cleared:
            self._mark_stopped()
        task.cancel()

    def session(self) -> Session:
        sweep = self._store.sweep()
        return Session(self._store, sweep, targets_of(sweep.cluster), self.say)

    def run(self, work: Any) -> Any:
        """Runs a coroutine to its end, such that `on_kill` and a time limit can cancel it."""

        async def held() -> Any:
            loop, task = asyncio.get_running_loop(), asyncio.current_task()
            assert task is not None
            self._running = (loop, task)
            try:
                with self._time_limit(loop, task):
                    return await work
            finally:
                self._running = None

        return asyncio.run(held())

    @contextmanager
    def _time_limit(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> Iterator[None]:
        """Airflow's time limit is an exception out of a signal handler, which an event loop may swallow."""

        def over() -> None:
            self._timed_out = True
            task.cancel(self._over_time())

        before = signal.getsignal(signal.SIGALRM)
        loop.add_signal_handler(signal.SIGALRM, over)
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGALRM)
            signal.signal(signal.SIGALRM, before)

    def _over_time(self) -> str:
        return f"stopped after {self.execution_timeout}, the time limit that Airflow was given for it"

    def say(self, text: str) -> None:
        self._tell(self.log.info, text)

    def _fail(self, sentence: str, exit_code: int) -> NoReturn:
        """Fails the task with the sentence alone: Airflow prints a traceback for an exception, and none for an exit."""
        self._tell(self.log.error, sentence)
        sys.exit(exit_code)

    def _tell(self, log: Callable[..., object], text: str) -> None:
        with telling():
            for line in text.splitlines():
                log("%s", line)

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
