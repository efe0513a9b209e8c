"""Why a gang did not succeed: the first cause, not what only followed from it. Pure, but for the tasks that it reads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from scaleout.errors import GangError, NodeError, SupersededError
from scaleout.remote.part import Part
from training.wire.causes import doubt, told
from training.wire.job import ExitStatus, RankProgress


@dataclass(frozen=True, order=True)
class _Failure:
    """Why one part did not succeed. The least is the first cause; what merely was stopped comes after all others.

    A rank that told an error was not merely stopped, even if its launcher had not ended yet when a peer's had.
    """

    was_stopped: bool
    doubt: int
    at_wall_s: float
    sentence: str


def first_cause(ended: Sequence[tuple[Part, asyncio.Task[ExitStatus]]]) -> GangError | None:
    """None when every part succeeded."""
    for _, task in ended:
        if not task.cancelled() and isinstance(task.exception(), SupersededError):
            return SupersededError(str(task.exception()))
    stalled = _stalled(ended)
    if stalled is not None:
        return stalled
    failures = [failure for part, task in ended if (failure := _failure(part, task))]
    return GangError(min(failures).sentence) if failures else None


def _failure(part: Part, task: asyncio.Task[ExitStatus]) -> _Failure | None:
    name = part.place.node.name
    if task.cancelled():
        return _Failure(True, 0, part.ended_wall_s, f"{name}: did not answer when it was told to stop")
    error = task.exception()
    if error is not None:
        if not isinstance(error, NodeError):
            raise error
        return _Failure(False, 0, part.ended_wall_s, str(error))
    status = task.result()
    return None if status.state == "succeeded" else _of_status(status, part.clock_ahead_s)


def merely_stopped(status: ExitStatus) -> bool:
    """Whether the node tells no cause of its own. One whose disk is full does, whatever its ranks had room to say."""
    return status.state == "stopped" and not status.disk_full and status.rank_error is None


def _of_status(status: ExitStatus, clock_ahead_s: float) -> _Failure:
    error = status.rank_error
    if error is not None:
        return _Failure(
            False, 0 if status.disk_full else doubt(error.error), error.t_wall_s - clock_ahead_s, told(status)
        )
    return _Failure(merely_stopped(status), 0, status.ended_wall_s - clock_ahead_s, told(status))


def _stalled(ended: Sequence[tuple[Part, asyncio.Task[ExitStatus]]]) -> GangError | None:
    """The rank that was suspended, else the one whose last sign of life is oldest, when none made progress."""
    if not any(part.told_to_stall for part, _ in ended):
        return None
    found: list[tuple[float, Part, RankProgress]] = [
        (rank.t_wall_s - part.clock_ahead_s, part, rank)
        for part, task in ended
        if not task.cancelled() and task.exception() is None and task.result().state == "stalled"
        for rank in task.result().progress
    ]
    if not found:
        names = ", ".join(part.place.node.name for part, _ in ended)
        return GangError(f"{names}: no rank began an event log in time: the gang made no progress, and was stopped")
    oldest, part, rank = min(found, key=lambda entry: (not entry[2].suspended, entry[0]))
    ahead = sorted(entry[0] for entry in found)[-1] - oldest
    return GangError(
        f"{part.place.node.name}: rank {rank.rank}: no progress, and the gang was stopped; {_why_this(rank)}, "
        f"{ahead:.1f} s before the newest of the gang; stacks are in "
        f"{part.place.folder}/stacks.txt, which is collected"
    )


def _why_this(rank: RankProgress) -> str:
    if rank.suspended:
        return f"its process is suspended, with its last sign of life after {rank.last_event!r}"
    return f"its last sign of life, after {rank.last_event!r}, is the oldest"
