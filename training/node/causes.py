"""Finds which rank of a node failed first, and why, in the event logs of the run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from training.wire.causes import doubt
from training.wire.events import RunEnd, read_events
from training.wire.job import EVENTS_FILE, RankError
from training.wire.schema import WireError


def first_rank_error(folder: Path, seen: Sequence[RankError], until_wall_s: float) -> RankError | None:
    """The earliest failure of a rank; None when none failed. `seen`: how processes of ranks were seen to end.

    A rank that told how it ended is believed; one that was killed had no time to tell. An end of which
    nothing is known counts where there is no better, and one that only noticed the fall of another last of all. What a
    rank told after `until_wall_s`, when its part was being ended, followed from that.
    """
    told = {rank: error for path in folder.glob(f"rank*/{EVENTS_FILE}") for rank, error in _told(path)}
    errors = [error for error in told.values() if error and error.t_wall_s <= until_wall_s]
    errors += [error for error in seen if error.rank not in told]
    return min(errors, key=_order, default=None)


def _order(error: RankError) -> tuple[int, float]:
    return doubt(error.error), error.t_wall_s


def _told(path: Path) -> list[tuple[int, RankError | None]]:
    """What a rank told of its end, if it did: an error, or None."""
    try:
        return [
            (event.rank, None if event.body.error is None else RankError(event.rank, event.t_wall_s, event.body.error))
            for event in read_events(path)
            if isinstance(event.body, RunEnd)
        ]
    except WireError as error:  # a damaged log is told as the failure that it is, when the trial is collected
        print(error, flush=True)
        return []
