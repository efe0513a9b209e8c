"""Finds what is left of gangs: their processes are known by a variable in their environment.

A second net. While a supervisor lives, nothing of its part can get away from it; this is for a part whose guardian and holder
were both killed, and for one that a node holds on to while the orchestrator has given it up.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import psutil

from training.node.proc import environment_of
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


def _marked(wanted: Callable[[Path], bool]) -> list[psutil.Process]:
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            folder = environment_of(pid).get(RUN_FOLDER_VARIABLE.encode())
            if folder is not None and wanted(Path(os.fsdecode(folder))):
                found.append(psutil.Process(pid))
        except (OSError, psutil.NoSuchProcess):  # it ended while we looked, or is not ours
            continue
    return found
