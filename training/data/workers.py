"""Work over frames on several processes, and its progress."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, TypeVar

from training.data.errors import DataError

Item = TypeVar("Item")
Result = TypeVar("Result")

_PR_SET_PDEATHSIG = 1  # prctl(2)
_PROGRESS_INTERVAL_S = 2.0
_WAIT_S = 0.5
_TURNS_AHEAD = 4  # items given out for each worker, so that none waits for the slowest


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def map_ordered(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """`function` of each item, in the order of the items, computed by `workers` processes (1: by this one).

    Few items are taken before their turn, so that neither they nor their results fill memory. Raises what `function`
    raises, and DataError when a worker process was killed.
    """
    items = iter(items)
    first = list(islice(items, workers))
    if len(first) < 2:
        yield from map(function, chain(first, items))
        return
    with _pool(len(first), None) as pool:
        pending = deque(pool.submit(function, item) for item in first)
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= _TURNS_AHEAD * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def map_unordered(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int,
    waiting: Callable[[], None],
    stopping: Callable[[], None],
) -> Iterator[Result]:
    """`function` of each item, as they get done, computed by `workers` other processes, also where that is one.

    These are forks that hold `function` as it is now: only items and results are copied. `waiting` is called about every
    half second. Raises like `map_ordered`; then `stopping` is called, and what has begun is waited for.
    """
    if not items:
        return
    with _pool(min(workers, len(items)), function) as pool:
        pending = {pool.submit(_call, item) for item in items}
        try:
            while pending:
                done, pending = wait(pending, _WAIT_S, FIRST_COMPLETED)
                for future in done:
                    yield future.result()
                waiting()
        except BaseException:
            stopping()
            raise


@contextmanager
def _pool(workers: int, function: Callable[[Any], Any] | None) -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(workers, context, _begin, (os.getpid(), function)) as pool:
        try:
            with _uninterrupted():
                pool.submit(int)  # starts all workers
            yield pool
        except BrokenProcessPool as error:
            raise DataError("a worker process was killed (out of memory?); use fewer --workers") from error
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Lets Ctrl-C wait until the block ends: while a process forks, Python would pass over it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(parent: int, function: Callable[[Any], Any] | None) -> None:
    global _function
    _die_with(parent)
    _function = function


_function: Callable[[Any], Any] | None = None


def _call(item: Any) -> Any:
    assert _function is not None
    return _function(item)


def _die_with(parent: int) -> None:
    """Ends this worker with its parent: a killed parent cannot tell its workers, which would wait for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Interval:
    """Says when a line of progress is due: at most every 2 s."""

    def __init__(self) -> None:
        self._told_s = time.monotonic()

    def is_due(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._told_s < _PROGRESS_INTERVAL_S:
            return False
        self._told_s = now_s
        return True


class Progress:
    """Prints a plain line of progress at most every 2 s, with MB/s where bytes are counted."""

    def __init__(self, total: int, what: str) -> None:
        self._total, self._what, self._done, self._bytes = total, what, 0, 0
        self._start_s, self._interval = time.monotonic(), Interval()

    def step(self, items: int = 1, size_bytes: int = 0) -> None:
        """Counts items as done, and the bytes that were read or written for them."""
        self._done += items
        self._bytes += size_bytes
        if not self._done or not self._interval.is_due():
            return
        taken_s = time.monotonic() - self._start_s
        per_s = self._done / taken_s
        rates = f"{per_s:.1f} per second" + (f", {self._bytes / 1e6 / taken_s:.0f} MB/s" if self._bytes else "")
        left_s = (self._total - self._done) / per_s
        print(f"{self._done} of {self._total} {self._what}, {rates}, {left_s:.0f} s left", flush=True)
