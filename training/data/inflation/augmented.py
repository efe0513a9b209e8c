"""Variants of a frame that are its augmentations."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from training.data.errors import DataError
from training.data.inflation.augment import Augmenter, Change, Pixels, draw_change
from training.data.inflation.encode import encode_jpeg, encode_png

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def decode_picture(content: bytes, path: Path) -> Pixels:
    """The pixels (height, width, 3) of an image file. Raises DataError."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.array(image.convert("RGB"))
    except Exception as error:  # PIL's decoders raise what the damaged bytes lead them to
        raise DataError(
            f"{path}: cannot be decoded ({error}); put the frame back, or make the base set again"
        ) from error


class Augmented:
    """The variants of one frame, which is decoded once. Variant 0 has the frame's own bytes, if they are PNG and shall be."""

    def __init__(
        self, content: bytes, path: Path, frame_name: str, seed: int, augmenter: Augmenter, file_format: str
    ) -> None:
        """Raises DataError."""
        self._content, self._frame_name, self._seed, self._augmenter = content, frame_name, seed, augmenter
        self._pixels = decode_picture(content, path)
        self._encode = encode_png if file_format == "png" else encode_jpeg
        self._keeps_content = file_format == "png" and content.startswith(_PNG_SIGNATURE)

    def variant(self, number: int) -> tuple[bytes, Change | None]:
        if number == 0:
            return (self._content if self._keeps_content else self._encode(self._pixels)), None
        height, width, _ = self._pixels.shape
        change = draw_change(self._seed, self._frame_name, number, width, height)
        return self._encode(self._augmenter.image(self._pixels, change)), change
