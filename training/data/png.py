"""Checks a PNG by its ends, without decoding it (PNG specification, 5.2, 11.2.1 and 11.2.5)."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from training.data.errors import DataError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_IEND = b"IEND\xaeB`\x82"
_TAIL_BYTES = 4096


def png_size(path: Path) -> tuple[int, int]:
    """Width and height in px. Raises DataError when the file is not a PNG or was cut off."""
    with path.open("rb") as file:
        head = file.read(24)
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - _TAIL_BYTES))
        tail = file.read()
    if not head.startswith(_SIGNATURE) or len(head) < 24 or head[12:16] != b"IHDR":
        raise DataError(f"{path}: not a PNG; replace it with the frame's picture, or remove it")
    if _IEND not in tail:
        raise DataError(f"{path}: a PNG that was cut off; copy it again, or remove it")
    width, height = struct.unpack(">II", head[16:24])
    return width, height
