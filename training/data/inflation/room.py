"""Whether what is left to make fits the file system."""

from __future__ import annotations

import os
from pathlib import Path

from training.data.errors import DataError
from training.data.sizes import size_text

_MARGIN = 1.02  # variants differ from the sample that their size is known from


def check_room(out: Path, need_bytes: float, need_files: int, images: int) -> None:
    """Raises DataError where so many more bytes and files, for `images` images, are not free in the folder `out`."""
    status = os.statvfs(out)
    free_bytes = status.f_frsize * status.f_bavail
    if _MARGIN * need_bytes > free_bytes:
        raise DataError(
            f"{out}: {images:,} images take {size_text(need_bytes)}, and {size_text(free_bytes)} are free; "
            "make room, or give an --out that has it"
        )
    if status.f_files and need_files > status.f_favail:  # some file systems do not count
        raise DataError(
            f"{out}: {images:,} images take {need_files:,} files, and the file system has inodes for {status.f_favail:,} more; "
            "give an --out on another one"
        )
