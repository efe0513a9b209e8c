"""One launch at a time on a node: the last one that got ready has the ticket, and only with it a part is started.

An orchestrator may be held up between "ready" and "go" (suspended, or behind a cut link) for as long as it takes another to
launch. The lock makes the order strict: either the earlier part stands before the later launch takes the ticket, and is then
ended as a leftover, or it finds that the ticket is gone and never starts.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.node.leftovers import runs_of

TICKET_FILE = "current.{node}"  # nodes may share the folder: a home on the network
LOCK_FILE = "current.{node}.lock"


def take(folder: Path) -> None:
    """The ticket now belongs to the launch into this run folder."""
    with _locked(folder) as ticket:
        partial = ticket.with_name(f".{ticket.name}.{os.getpid()}")
        partial.write_bytes(os.fsencode(folder))
        partial.replace(ticket)


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Whether the ticket is still this folder's; while the block runs, nobody else can take it."""
    with _locked(folder) as ticket:
        yield ticket.read_bytes() == os.fsencode(folder)


@contextmanager
def _locked(folder: Path) -> Iterator[Path]:
    runs, node = runs_of(folder), folder.name
    with (runs / LOCK_FILE.format(node=node)).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield runs / TICKET_FILE.format(node=node)
