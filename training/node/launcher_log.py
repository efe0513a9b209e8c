"""What torchrun tells, at its end, of the ranks that failed: their statuses, which nobody else may have been in time to see.

Its table has, for each such rank, `time`, `rank : 3 (local_rank: 1)` and `exitcode : -11 (pid: 970)`, one a line; lines of ranks
begin with their prefix and are none of it.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Sequence

from training.node.ranks import describe_end
from training.wire.causes import UNKNOWN_END
from training.wire.job import RankError

_TABLE = "Failures:"
_TIME = re.compile(r"  time +: (\d{4}-\d\d-\d\d_\d\d:\d\d:\d\d)$")
_RANK = re.compile(r"  rank +: (\d+) \(local_rank: \d+\)$")
_CODE = re.compile(r"  exitcode +: (-?\d+) \(pid: \d+\)")


def failures(lines: Iterable[str]) -> dict[int, RankError]:
    """By rank, from the last table in a log; its times are the node's clock, in whole seconds."""
    found: dict[int, RankError] = {}
    wall_s, rank = 0.0, None
    for line in lines:
        if line == _TABLE:
            found = {}
        if at := _TIME.match(line):
            with contextlib.suppress(ValueError, OverflowError):
                wall_s = time.mktime(time.strptime(at[1], "%Y-%m-%d_%H:%M:%S"))
        elif number := _RANK.match(line):
            rank = int(number[1])
        elif (code := _CODE.match(line)) and rank is not None:
            found[rank] = RankError(rank, wall_s, describe_end(int(code[1])))
    return found


def completed(seen: Sequence[RankError], told: dict[int, RankError]) -> list[RankError]:
    """What was seen of ranks' ends, with the statuses that only the launcher saw, and the ranks that only it saw end."""
    known = [
        RankError(error.rank, error.t_wall_s, told[error.rank].error)
        if error.error == UNKNOWN_END and error.rank in told
        else error
        for error in seen
    ]
    return known + [told[rank] for rank in sorted(told.keys() - {error.rank for error in seen})]
