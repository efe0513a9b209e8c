"""The content hash that names a release of `training/`."""

from __future__ import annotations

import hashlib
from pathlib import Path

_LENGTH = 16
_MADE_THERE = {"__pycache__", "logs"}  # logs: the segmentation program's --result_dir where it is started in its folder


def release_files(training: Path) -> list[Path]:
    """The files of a release, sorted, relative to the folder that holds `training/`.

    Left out is what running the programs leaves there, and what is hidden.
    """
    root = training.parent
    return sorted(
        path.relative_to(root)
        for path in training.rglob("*")
        if path.is_file()
        and path.suffix != ".pyc"
        and not any(part.startswith(".") or part in _MADE_THERE for part in path.relative_to(root).parts)
    )


def content_hash(training: Path) -> str:
    """16 hexadecimal digits of the SHA-256 over the names and the bytes of a release's files."""
    digest = hashlib.sha256()
    for relative in release_files(training):
        content = (training.parent / relative).read_bytes()
        digest.update(f"{relative.as_posix()}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()[:_LENGTH]
