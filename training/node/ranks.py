"""Sees the ranks of this node end: when, and with which status or signal, also if they had no time to tell.

A rank is a process with RANK and LOCAL_RANK in its environment, as torchrun sets them. Its status goes to its parent, the
launcher; but a dead process keeps it in /proc until its parent has asked for it, and a pidfd tells at once that it died.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from training.node.proc import environment_of, stat_fields
from training.wire.causes import UNKNOWN_END
from training.wire.job import RankError

LOOK_INTERVAL_S = 0.2


class Ranks:
    """The ranks below the process `launcher`. `errors` are those that ended badly, in order."""

    def __init__(self, launcher: int) -> None:
        self._launcher = launcher
        self._poll = select.poll()
        self._watched: dict[int, tuple[int, int]] = {}
        self._seen: set[int] = set()
        self._next_look = 0.0
        self.errors: list[RankError] = []

    def wait(self, seconds: float) -> None:
        """Waits that long, or until a rank ends."""
        self._look()
        for descriptor, _ in self._poll.poll(seconds * 1000):
            rank, pid = self._watched.pop(descriptor)
            self._poll.unregister(descriptor)
            os.close(descriptor)
            ended = _how_it_ended(pid)
            if ended:
                self.errors.append(RankError(rank, time.time(), ended))

    def suspended(self) -> set[int]:
        """The ranks whose process was stopped by a signal, or by who traces it."""
        return {rank for rank, pid in self._watched.values() if _state(pid) in ("T", "t")}

    def close(self) -> None:
        for descriptor in self._watched:
            os.close(descriptor)
        self._watched.clear()

    def _look(self) -> None:
        """Finds ranks that have started since. The first process of a rank is the rank; its own children are not."""
        if time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + LOOK_INTERVAL_S
        for rank, pid in _ranks_below(self._launcher):
            if rank in self._seen:
                continue
            try:
                descriptor = os.pidfd_open(pid)
            except OSError:
                continue
            self._seen.add(rank)
            self._watched[descriptor] = (rank, pid)
            self._poll.register(descriptor, select.POLLIN)


def describe_end(code: int) -> str:
    """`code` as subprocess gives it: a status, or minus a signal."""
    if code >= 0:
        return f"exit status {code}"
    names = {number.value: number.name for number in signal.Signals}  # most real-time signals have none
    return f"killed by {names.get(-code, f'signal {-code}')}"


def rank_of(pid: int) -> int | None:
    """The global rank that a process belongs to; None where it belongs to none, is gone, or is not ours to look at."""
    try:
        values = environment_of(pid)
    except OSError:
        return None
    rank = values.get(b"RANK", b"")
    return int(rank) if rank.isdigit() and b"LOCAL_RANK" in values else None


def _ranks_below(pid: int) -> Iterator[tuple[int, int]]:
    for child in _children(pid):
        rank = rank_of(child)
        if rank is None:
            yield from _ranks_below(child)
        else:
            yield rank, child


def _children(pid: int) -> list[int]:
    found: list[int] = []
    tasks = Path(f"/proc/{pid}/task")
    with contextlib.suppress(OSError):  # it ended while we looked; a glob would raise as well
        for task in os.listdir(tasks):
            found += map(int, (tasks / task / "children").read_text().split())
    return found


def _state(pid: int) -> str | None:
    try:
        return stat_fields(pid)[0]
    except OSError:
        return None


def _how_it_ended(pid: int) -> str | None:
    """How a dead process ended; None for status 0."""
    try:
        code = int(stat_fields(pid)[-1])
    except OSError:  # its parent was quicker than we
        return UNKNOWN_END
    return describe_end(os.waitstatus_to_exitcode(code)) if code else None
