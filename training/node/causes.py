"""Finds which rank of a node failed first, and why, in the event logs of the run folder."""

from __future__ import annotations

from pathlib import Path

from training.wire.events import RunEnd, read_events
from training.wire.job import EVENTS_FILE, RankError
from training.wire.schema import WireError


def first_rank_error(folder: Path) -> RankError | None:
    """The earliest failure that a rank told; None when no rank told any (killed ranks tell nothing)."""
    errors = [error for path in folder.glob(f"rank*/{EVENTS_FILE}") for error in _errors(path)]
    return min(errors, key=lambda error: error.t_wall_s, default=None)


def _errors(path: Path) -> list[RankError]:
    try:
        return [
            RankError(event.rank, event.t_wall_s, event.body.error)
            for event in read_events(path)
            if isinstance(event.body, RunEnd) and event.body.error is not None
        ]
    except WireError as error:  # a damaged log is told as the failure that it is, when the trial is collected
        print(error, flush=True)
        return []
