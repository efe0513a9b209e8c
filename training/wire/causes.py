"""Which failures only follow from another: both sides look for the first cause, on one node and over all."""

from __future__ import annotations

import re

_NOTICED = re.compile(
    r"connection (was )?(closed|reset|refused)|closed by (remote )?peer|broken pipe|socket (timeout|closed)|"
    r"remote process exited|unhandled system error|watchdog caught|timed out (waiting|after)|SIGABRT|SIGTERM",
    re.IGNORECASE,
)


UNKNOWN_END = "its process ended; its launcher knows how"


def only_noticed(error: str) -> bool:
    """Whether a rank that ends so has merely noticed the fall of another.

    Sockets that the other end closed, collectives that timed out (torch's gloo and NCCL backends), SIGABRT from NCCL's
    watchdog, and SIGTERM from a launcher of which another rank has failed. An end of which nothing is known may be that too.
    """
    return error == UNKNOWN_END or bool(_NOTICED.search(error))
