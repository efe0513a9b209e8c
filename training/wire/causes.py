"""Which failures only follow from another: both sides look for the first cause, on one node and over all."""

from __future__ import annotations

import re

from training.wire.job import ExitStatus

_NOTICED = re.compile(
    r"connection (was )?(closed|reset|refused)|closed by (remote )?peer|broken pipe|socket (timeout|closed)|"
    r"remote process exited|unhandled system error|watchdog caught|timed out (waiting|after)|SIGABRT|SIGTERM",
    re.IGNORECASE,
)


UNKNOWN_END = "its process ended; its launcher knows how"


def doubt(error: str) -> int:
    """How doubtful it is that a rank that ended so was the first to fall: 0 it fell by itself, 1 nobody knows, 2 it only noticed.

    It has noticed another's fall where it tells of sockets that the other end closed or of collectives that timed out (torch's
    gloo and NCCL backends), where NCCL's watchdog ended it by SIGABRT, and its launcher, of which another rank had failed, by
    SIGTERM.
    """
    if error == UNKNOWN_END:
        return 1
    return 2 if _NOTICED.search(error) else 0


def told(status: ExitStatus) -> str:
    """How a part that did not succeed ended, in the words of its rank where one told an error, with the end of its log."""
    tail = "; the end of its log:\n" + "\n".join(f"    {line}" for line in status.log_tail) if status.log_tail else ""
    if status.rank_error is not None:
        error = status.rank_error
        return f"{status.node}: rank {error.rank}: {error.error} ({status.state}: {status.reason}){tail}"
    return f"{status.node}: {status.state}: {status.reason}{tail}"
