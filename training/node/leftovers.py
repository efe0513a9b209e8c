"""Ends what is left of gangs: their processes are known by a variable in their environment.

A second net. While a supervisor lives, nothing of its part can get away from it; this is for a part whose guardian and holder
were both killed, and for one that a node holds on to while the orchestrator has given it up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from training.node.descendants import KILL_LIMIT_S, TICK_S, end
from training.wire.job import RUN_FOLDER_VARIABLE

RUNS = "runs"


def runs_of(folder: Path) -> Path:
    """The folder that holds all run folders of a node's remote root; for one that lies elsewhere, its parent."""
    return folder.parents[2] if len(folder.parents) > 2 and folder.parents[2].name == RUNS else folder.parent


def of_folder(folder: Path) -> list[psutil.Process]:
    """The processes of the part in a run folder, its supervisors included."""
    return _marked(lambda other: other == folder)


def of_earlier_gangs(folder: Path) -> list[psutil.Process]:
    """Those of this node's other run folders in the same `runs`: one sweep at a time holds a node, and one gang of it.

    Nodes may share a `runs` (a home on the network), and even a machine.
    """
    runs = runs_of(folder)
    return _marked(lambda other: other != folder and other.name == folder.name and runs in other.parents)


def end_all(find: Callable[[], list[psutil.Process]], grace_s: float) -> int:
    """TERM, the grace period, KILL, until `find` gives none. Returns how many there were."""
    deadline = time.monotonic() + grace_s
    told: set[int] = set()
    while (found := find()) and time.monotonic() < deadline + KILL_LIMIT_S:
        late = time.monotonic() >= deadline
        for process in found:
            if late or process.pid not in told:
                told.add(process.pid)
                end(process, kill=late)
        time.sleep(TICK_S)
    return len(told)


def _marked(wanted: Callable[[Path], bool]) -> list[psutil.Process]:
    mark = f"{RUN_FOLDER_VARIABLE}=".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            entries = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            folders = [Path(os.fsdecode(entry.removeprefix(mark))) for entry in entries if entry.startswith(mark)]
            if folders and wanted(folders[0]):
                found.append(psutil.Process(int(name)))
        except (OSError, psutil.NoSuchProcess):  # it ended while we looked, or is not ours
            continue
    return found
