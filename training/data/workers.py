"""Work over frames on several processes, and its progress."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from training.data.errors import DataError

Item = TypeVar("Item")
Result = TypeVar("Result")

_PR_SET_PDEATHSIG = 1  # prctl(2)
_PROGRESS_INTERVAL_S = 2.0


def available_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def map_ordered(function: Callable[[Item], Result], items: Sequence[Item], workers: int) -> Iterator[Result]:
    """`function` of each item, in the order of the items, computed by `workers` processes (1: by this one).

    Raises what `function` raises, and DataError when a worker process was killed.
    """
    if workers == 1 or len(items) < 2:
        yield from map(function, items)
        return
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(workers, len(items)), context, _die_with, (os.getpid(),)) as pool:
        try:
            yield from pool.map(function, items)
        except BrokenProcessPool as error:
            raise DataError("a worker process was killed (out of memory?); use fewer --workers") from error
        finally:
            pool.shutdown(cancel_futures=True)


def _die_with(parent: int) -> None:
    """Ends this worker with its parent: a killed parent cannot tell its workers, which would wait for ever."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class Progress:
    """Prints a plain line of progress at most every 2 s."""

    def __init__(self, total: int, what: str) -> None:
        self._total, self._what, self._done = total, what, 0
        self._start_s = self._printed_s = time.monotonic()

    def step(self) -> None:
        """Counts one item as done."""
        self._done += 1
        now_s = time.monotonic()
        if now_s - self._printed_s < _PROGRESS_INTERVAL_S:
            return
        self._printed_s = now_s
        per_s = self._done / (now_s - self._start_s)
        left_s = (self._total - self._done) / per_s
        print(f"{self._done} of {self._total} {self._what}, {per_s:.1f} per second, {left_s:.0f} s left", flush=True)
