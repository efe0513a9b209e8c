"""The size of a picture, and whether it is whole, without decoding it."""

from __future__ import annotations

import os
from pathlib import Path

from PIL import Image

from training.data.errors import DataError
from training.data.png import png_size

_JPEG_ENDS = (".jpg", ".jpeg")
_END_OF_IMAGE = b"\xff\xd9"  # ITU-T T.81, B.1.1.3
_TAIL_BYTES = 4096


def picture_size(path: Path) -> tuple[int, int]:
    """Width and height in px of a PNG or JPEG. Raises DataError when the file is neither or was cut off, and OSError."""
    return _jpeg_size(path) if path.suffix.lower() in _JPEG_ENDS else png_size(path)


def _jpeg_size(path: Path) -> tuple[int, int]:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
        tail = file.read()
    try:
        with Image.open(path, formats=["JPEG"]) as image:
            size: tuple[int, int] = image.size
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path}: not a JPEG; replace it with the frame's picture, or remove it") from error
    if _END_OF_IMAGE not in tail:
        raise DataError(f"{path}: a JPEG that was cut off; copy it again, or remove it")
    return size
