"""From a frame's file to the file of a variant."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from training.data.errors import DataError
from training.data.inflation.augment import Augmenter, Change, Pixels
from training.data.inflation.encode import encode_jpeg, encode_png


def decode_picture(content: bytes, where: str) -> Pixels:
    """The pixels (height, width, 3) of an image file. Raises DataError saying `where` it is."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            return np.array(image.convert("RGB"))
    except Exception as error:  # PIL's decoders raise what the damaged bytes lead them to
        raise DataError(
            f"{where}: cannot be decoded ({error}); put the frame back, or make the base set again"
        ) from error


_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class Pictures:
    """The variants of one frame, which is decoded once."""

    def __init__(self, content: bytes, where: str, augmenter: Augmenter | None, file_format: str) -> None:
        """Without an augmenter, all variants are the frame itself."""
        self._content, self._augmenter, self._format = content, augmenter, file_format
        self._is_png = content.startswith(_PNG_SIGNATURE)
        self._pixels = decode_picture(content, where) if augmenter or file_format != "png" else None

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in px, of a frame that is augmented."""
        assert self._pixels is not None
        height, width, _ = self._pixels.shape
        return width, height

    def file(self, change: Change | None) -> bytes:
        """A variant's file; without a change, the frame itself: as PNG its own bytes."""
        if self._pixels is None or (change is None and self._format == "png" and self._is_png):
            return self._content
        pixels = self._pixels
        if change is not None:
            assert self._augmenter is not None
            pixels = self._augmenter.image(pixels, change)
        return encode_png(pixels) if self._format == "png" else encode_jpeg(pixels)
