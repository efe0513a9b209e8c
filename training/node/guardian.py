"""Two processes hold a part of a gang, so that killing either leaves no rank behind.

The holder runs the job. The guardian, its parent, does nothing but wait: it inherits what a killed holder leaves, ends it,
and writes the exit status. When the guardian is killed, the holder is told by the kernel and stops its part.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from training.node.descendants import adopt_orphans, die_with_parent
from training.node.gang_part import GangPart
from training.node.proc import boot_id, stat_fields
from training.node.ranks import describe_end
from training.wire.job import EXIT_FILE, JOB_FILE, Job
from training.wire.schema import read_json

PIDS_FILE = "supervisor.json"
OWN_LOG = "supervisor.log"


@dataclass(frozen=True)
class Identity:
    """A process, for as long as the machine is up: a process id may be given to another, with another start time."""

    pid: int
    started_ticks: int
    boot_id: str

    @classmethod
    def of(cls, pid: int) -> Identity:
        """Raises FileNotFoundError when there is no such process."""
        return cls(pid, int(stat_fields(pid)[19]), boot_id())

    def is_running(self) -> bool:
        """False for a process that is gone and, since nobody may have waited for it, for a zombie."""
        try:
            return self == Identity.of(self.pid) and stat_fields(self.pid)[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False


def guard(folder: Path) -> None:
    """Runs a holder of the part in `folder`, and does what it leaves undone."""
    adopt_orphans()
    guardian = os.getpid()
    holder = os.fork()
    if holder == 0:
        _exit_with(lambda: _hold(folder, guardian))
    pids = {name: vars(Identity.of(pid)) for name, pid in (("guardian", guardian), ("holder", holder))}
    partial = folder / f".{PIDS_FILE}"
    partial.write_text(json.dumps(pids))
    partial.replace(folder / PIDS_FILE)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(holder, signal.SIGTERM))
    code = _wait_for(holder)
    if not (folder / EXIT_FILE).exists():
        part = GangPart(read_json(Job, folder / JOB_FILE), folder)
        part.end_as_lost(f"its supervisor ended: {describe_end(code)}{_last_words(folder)}")


def supervisors(folder: Path) -> dict[str, Identity]:
    """`guardian` and `holder` of the part in `folder`. Raises FileNotFoundError where none was started."""
    return {name: Identity(**pids) for name, pids in json.loads((folder / PIDS_FILE).read_text()).items()}


def _hold(folder: Path, guardian: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    part = GangPart(read_json(Job, folder / JOB_FILE), folder)
    die_with_parent(guardian, signal.SIGTERM)
    part.hold()


def _exit_with(work: Callable[[], None]) -> None:
    """Ends this process after `work`, never returning to the code of the process that it was forked from."""
    try:
        work()
    except BaseException:
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _wait_for(holder: int) -> int:
    """Waits for the holder, and meanwhile for orphans that are adopted."""
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == holder:
            return os.waitstatus_to_exitcode(status)


def _last_words(folder: Path) -> str:
    lines = (folder / OWN_LOG).read_text(errors="replace").strip().splitlines()
    return f": {lines[-1]}" if lines else ""
