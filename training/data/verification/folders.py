"""The listing of a folder, without what is foreign there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from training.data.names import is_foreign


@dataclass(frozen=True)
class Listed:
    """A folder's entries, without foreign ones."""

    files: frozenset[str]
    folders: frozenset[str]


def listed(folder: Path) -> Listed:
    """Lists a folder. Links count as what they lead to. Raises OSError."""
    files, folders = set(), set()
    with os.scandir(folder) as entries:
        for entry in entries:
            if not is_foreign(entry.name):
                (folders if entry.is_dir() else files).add(entry.name)
    return Listed(frozenset(files), frozenset(folders))
