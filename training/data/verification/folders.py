"""The listing of a folder, without what the file system itself puts there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_IGNORED = re.compile(r"\.nfs[0-9a-f]+|\.snapshot")  # of the file system: a file that is still open, its snapshots


@dataclass(frozen=True)
class Listed:
    """A folder's entries, without those of the file system itself."""

    files: frozenset[str]
    folders: frozenset[str]


def listed(folder: Path) -> Listed:
    """Lists a folder. Links count as what they lead to. Raises OSError."""
    files, folders = set(), set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(".") and _IGNORED.fullmatch(entry.name)):
                (folders if entry.is_dir() else files).add(entry.name)
    return Listed(frozenset(files), frozenset(folders))
