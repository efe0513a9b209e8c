"""Checks a PNG without decoding it: by its ends, or chunk by chunk (PNG specification, 5, 11.2.1 and 11.2.5)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import deflate

from training.data.errors import DataError

RGB = 2
COLOURS = {0: "grey", RGB: "RGB", 3: "a palette", 4: "grey with alpha", 6: "RGB with alpha"}  # by colour type

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_IEND = b"IEND\xaeB`\x82"
_HEADER_BYTES = 13
_TAIL_BYTES = 4096


class PngHeader(NamedTuple):
    """What the IHDR chunk says. Sizes in px, `depth` in bits a channel."""

    width: int
    height: int
    depth: int
    colour: int
    compression: int
    filtering: int
    interlace: int


def png_size(path: Path) -> tuple[int, int]:
    """Width and height in px, from the file's ends alone. Raises DataError when it is not a PNG or was cut off."""
    with path.open("rb") as file:
        head = file.read(24)
        size_bytes = file.seek(0, os.SEEK_END)
        file.seek(max(0, size_bytes - _TAIL_BYTES))
        tail = file.read()
    if not head.startswith(_SIGNATURE) or len(head) < 24 or head[12:16] != b"IHDR":
        raise _not_png(path)
    if _IEND not in tail:
        raise _cut_off(path)
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def check_png(content: bytes, path: Path, what: str = "picture") -> PngHeader:
    """The header of a PNG of this content, the frame's `what`. Raises DataError when it is none, was cut off or damaged."""
    if b"IDAT" not in {kind for kind, _ in png_chunks(content, path, what)}:
        raise _cut_off(path)
    return png_header(content)


def check_kind(header: PngHeader, path: Path) -> None:
    """Raises DataError for a picture that is not RGB of 8 bits."""
    if (header.colour, header.depth) != (RGB, 8):
        colour = COLOURS.get(header.colour, f"colour type {header.colour}")
        raise DataError(
            f"{path}: a PNG in {colour} of bit depth {header.depth}; frames are in RGB of bit depth 8: "
            "convert it, or remove it"
        )


def png_header(content: bytes) -> PngHeader:
    """The header of a PNG whose chunks were checked."""
    return PngHeader(*struct.unpack_from(">IIBBBBB", content, len(_SIGNATURE) + 8))


def png_chunks(content: bytes, path: Path, what: str = "picture") -> Iterator[tuple[bytes, memoryview]]:
    """Kind and data of each chunk, IHDR to IEND, after its CRC was checked. Raises DataError like `check_png`."""
    whole, at = memoryview(content), len(_SIGNATURE)
    if not content.startswith(_SIGNATURE) or content[at : at + 8] != struct.pack(">I4s", _HEADER_BYTES, b"IHDR"):
        raise _not_png(path, what)
    kind = b""
    while kind != b"IEND":
        if at + 12 > len(content):
            raise _cut_off(path)
        size, kind = struct.unpack_from(">I4s", content, at)
        end = at + 8 + size
        if end + 4 > len(content):
            raise _cut_off(path)
        if deflate.crc32(whole[at + 4 : end]) != int.from_bytes(whole[end : end + 4], "big"):
            chunk = f"its {kind.decode()} chunk" if kind.isalpha() else "a chunk"
            raise DataError(
                f"{path}: a PNG that was damaged: the CRC of {chunk} does not fit; copy it again, or remove it"
            )
        yield kind, whole[at + 8 : end]
        at = end + 4


def _not_png(path: Path, what: str = "picture") -> DataError:
    return DataError(f"{path}: not a PNG; replace it with the frame's {what}, or remove it")


def _cut_off(path: Path) -> DataError:
    return DataError(f"{path}: a PNG that was cut off; copy it again, or remove it")
