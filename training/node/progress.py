"""Whether the ranks of this node make progress, by their event logs, and where they stand when they do not."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psutil

from training.node.descendants import living_descendants
from training.node.ranks import rank_of
from training.node.unchanged import Unchanged
from training.wire.events import read_events
from training.wire.job import EVENTS_FILE, STACKS_FILE, RankProgress
from training.wire.schema import WireError

STACK_LIMIT_S = 1.0
ALL_STACKS_LIMIT_S = 10.0
SETTLE_S = 0.1


def idleness(folder: Path) -> Unchanged:
    """How long no rank's event log has been touched."""
    return Unchanged(lambda: [path.stat().st_mtime_ns for path in _logs(folder)])


def progress(folder: Path) -> list[RankProgress]:
    """Of each rank that has begun an event log in a run folder."""
    found = []
    for path in _logs(folder):
        try:
            last = list(read_events(path))[-1:]
        except WireError:  # a damaged log is told as the failure that it is, when the trial is collected
            continue
        found += [RankProgress(event.rank, path.stat().st_mtime, event.body.kind) for event in last]
    return found


def collect_stacks(folder: Path) -> None:
    """Has every process of the gang that knows how to (faulthandler on SIGUSR1) write its stacks, one after another."""
    path = folder / STACKS_FILE
    deadline = time.monotonic() + ALL_STACKS_LIMIT_S
    for process in living_descendants():
        if time.monotonic() > deadline:
            return
        if not _catches(process.pid, signal.SIGUSR1):
            continue
        try:
            with path.open("a") as out:
                out.write(f"\n== rank {rank_of(process.pid)}, process {process.pid}: {' '.join(process.cmdline())}\n")
            size = path.stat().st_size
            process.send_signal(signal.SIGUSR1)
            process.send_signal(signal.SIGCONT)
        except (psutil.NoSuchProcess, OSError):
            continue
        _settle(path, size)


def _settle(path: Path, size: int) -> None:
    """Waits until something was added and no more comes."""
    deadline = time.monotonic() + STACK_LIMIT_S
    before = size
    while time.monotonic() < deadline:
        time.sleep(SETTLE_S)
        now = path.stat().st_size
        if now != size and now == before:
            return
        before = now


def _catches(pid: int, number: int) -> bool:
    """Whether a process has a handler for the signal; without one it would die of it."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
    return bool(caught >> (number - 1) & 1)


def _logs(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"rank*/{EVENTS_FILE}"))
