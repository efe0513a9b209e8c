"""Whether what is left to make fits the file system."""

from __future__ import annotations

import shutil
from pathlib import Path

from training.data.errors import DataError
from training.data.sizes import size_text

_MARGIN = 1.02  # variants differ from the sample that their size is known from


def check_room(out: Path, need_bytes: float, images: int) -> None:
    """Raises DataError where `need_bytes` more for `images` images are not free in `out`, which need not be there."""
    place = next(folder for folder in (out, *out.parents) if folder.exists())
    free_bytes = shutil.disk_usage(place).free
    if _MARGIN * need_bytes > free_bytes:
        raise DataError(
            f"{out}: {images:,} images take {size_text(need_bytes)}, and {size_text(free_bytes)} are free; "
            "make room, or give an --out that has it"
        )
