"""Pictures and label images as PNG and JPEG. The bytes follow from the pixels on any CPU.

A photograph's noise leaves next to nothing for deflate to find twice, so a picture's bytes are the differences to the row
above in Huffman codes alone: smaller than with a fast search, and in half the time. Label images are runs. Neither strategy of
zlib searches, so that nothing depends on the vector instructions that zlib-ng has its searches done with.
"""

from __future__ import annotations

import io
import struct

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from zlib_ng import zlib_ng

JPEG_QUALITY = 92

Pixels = NDArray[np.uint8]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_DEPTH, _GREY, _RGB = 8, 0, 2  # PNG specification, 11.2.1
_UP = 2  # filter type, 9.2
_LEVEL, _WINDOW_BITS, _MEMORY = 1, 15, 8


def encode_png(pixels: Pixels) -> bytes:
    """A PNG of a picture (height, width, 3) or of labels (height, width)."""
    height, width = pixels.shape[:2]
    colour, strategy = (_RGB, zlib_ng.Z_HUFFMAN_ONLY) if pixels.ndim == 3 else (_GREY, zlib_ng.Z_RLE)
    header = struct.pack(">IIBBBBB", width, height, _DEPTH, colour, 0, 0, 0)
    packer = zlib_ng.compressobj(_LEVEL, zlib_ng.DEFLATED, _WINDOW_BITS, _MEMORY, strategy)
    data = packer.compress(_filtered(pixels.reshape(height, -1))) + packer.flush()
    return b"".join((_SIGNATURE, *_chunk(b"IHDR", header), *_chunk(b"IDAT", data), *_chunk(b"IEND", b"")))


def encode_jpeg(pixels: Pixels, quality: int = JPEG_QUALITY) -> bytes:
    """A JPEG of a picture (height, width, 3)."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    return file.getvalue()


def _filtered(lines: Pixels) -> Pixels:
    """Lines (height, bytes) as (height, 1 + bytes): each byte's difference to that above, after the filter's type."""
    out = np.empty((lines.shape[0], 1 + lines.shape[1]), np.uint8)
    out[:, 0] = _UP
    out[0, 1:] = lines[0]
    np.subtract(lines[1:], lines[:-1], out=out[1:, 1:])
    return out


def _chunk(kind: bytes, data: bytes) -> tuple[bytes, bytes, bytes, bytes]:
    return struct.pack(">I", len(data)), kind, data, struct.pack(">I", zlib_ng.crc32(data, zlib_ng.crc32(kind)))
