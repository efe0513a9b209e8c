"""Reads grey PNGs of flat regions, as label and instance images are, in a third of the time of a general decoder.

A PNG row is stored as its differences to what a filter predicts from the row above and the pixels on the left (PNG
specification, 9). Where regions are flat, nearly all differences are zero: rows are then copies of the rows above, and
only what differs is worked out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import deflate
import numpy as np
from numpy.typing import NDArray

from training.data.errors import DataError
from training.data.png import PngHeader, png_chunks, png_header

_NONE, _SUB, _UP, _PAETH = 0, 1, 2, 4
_FLAT = 1 / 64  # the largest part of the bytes that may differ: more take longer than a general decoder
_FILL = [bytes([value]) for value in range(256)]


def read_flat_png(path: Path) -> NDArray[np.unsignedinteger] | None:
    """The pixels (height, width) of a grey PNG, uint8, or big-endian uint16 by its depth.

    None where it is not one that this reads fast (another kind of PNG, no PNG, damaged): a general decoder can tell.
    Raises OSError.
    """
    found = _chunks(path.read_bytes(), path)
    if found is None:
        return None
    (width, height, depth, *kind), data = found
    if depth not in (8, 16) or kind != [0, 0, 0, 0] or not width or not height:
        return None
    pixel_bytes = depth // 8
    row_bytes = width * pixel_bytes
    try:
        raw = deflate.zlib_decompress(data, height * (row_bytes + 1))
    except deflate.DeflateError:
        return None
    stored = np.frombuffer(raw, np.uint8)
    if stored.size != height * (row_bytes + 1):
        return None
    rows = stored.reshape(height, row_bytes + 1)
    pixels = _unfiltered(rows[:, 0], rows[:, 1:], pixel_bytes)
    return pixels if pixels is None or depth == 8 else pixels.view(">u2")


def _chunks(file: bytes, path: Path) -> tuple[PngHeader, bytes] | None:
    """The header and the compressed data of a PNG, None where a chunk is damaged, missing or unknown and critical."""
    data = []
    try:
        for kind, content in png_chunks(file, path):
            if kind == b"IDAT":
                data.append(content)
            elif kind.isupper() and kind not in (b"IHDR", b"IEND"):  # critical: it changes what the pixels mean
                return None
    except DataError:
        return None
    return png_header(file), b"".join(data)


def _unfiltered(kinds: NDArray[np.uint8], differences: NDArray[np.uint8], pixel_bytes: int) -> NDArray[np.uint8] | None:
    """The bytes of the rows (height, row bytes); None where too many differ, or a row has another filter."""
    paeth = _Paeth.of(kinds, differences, pixel_bytes)
    if paeth is None:
        return None
    pixels = np.empty(differences.shape, np.uint8)
    above = np.zeros(differences.shape[1], np.uint8)
    for kind, difference, row in zip(kinds.tolist(), differences, pixels, strict=True):
        if kind == _UP:
            np.add(difference, above, out=row)
        elif kind == _PAETH:
            paeth.undo(row, above)
        elif kind == _SUB:
            for first in range(pixel_bytes):
                np.add.accumulate(difference[first::pixel_bytes], dtype=np.uint8, out=row[first::pixel_bytes])
        elif kind == _NONE:
            row[:] = difference
        else:
            return None
        above = row
    return pixels


class _Paeth:
    """Undoes the filter Paeth, row after row.

    A plane is all first or all second bytes of a row's pixels. `places` are where in its plane a difference is not
    zero, `values` these differences, both in the order of rows and planes; `ends` is where each plane's end in them.
    """

    def __init__(self, places: list[int], values: list[int], ends: Iterator[int], pixel_bytes: int) -> None:
        self._places, self._values, self._ends = places, values, ends
        self._pixel_bytes = pixel_bytes
        self._done = 0

    @classmethod
    def of(cls, kinds: NDArray[np.uint8], differences: NDArray[np.uint8], pixel_bytes: int) -> _Paeth | None:
        """None where too many differ."""
        filtered = differences[kinds == _PAETH]
        at = np.flatnonzero(filtered != 0)
        if at.size > _FLAT * differences.size:
            return None
        rows, columns = np.divmod(at, differences.shape[1])
        places, planes = np.divmod(columns, pixel_bytes)
        planes += rows * pixel_bytes
        order = np.argsort(planes, kind="stable")
        ends = np.cumsum(np.bincount(planes, minlength=len(filtered) * pixel_bytes))
        values = filtered.reshape(-1)[at[order]]
        return cls(places[order].tolist(), values.tolist(), iter(ends.tolist()), pixel_bytes)

    def undo(self, row: NDArray[np.uint8], above: NDArray[np.uint8]) -> None:
        """Fills the next row that has this filter."""
        row[:] = above
        for plane in range(self._pixel_bytes):
            end = next(self._ends)
            if end > self._done:
                step = slice(plane, None, self._pixel_bytes)
                self._undo_plane(row[step], above.tobytes()[step], end)
                self._done = end

    def _undo_plane(self, row: NDArray[np.uint8], above: bytes, last: int) -> None:
        """Changes the plane of a row that is a copy of the one above.

        As long as all bytes on the left equal those above them, a byte is predicted to equal the one above too. From a
        difference on that may be otherwise, up to where the row equals the one above again.
        """
        places, values, width = self._places, self._values, len(above)
        upcoming = self._done
        while upcoming < last:
            at = places[upcoming]
            top = above[at]
            value = (top + values[upcoming]) & 255
            upcoming += 1
            while value != top:
                # Up to the next difference, or change above, pixels equal their left neighbours.
                stop, difference = width - len(above[at:].lstrip(_FILL[top])), 0
                if upcoming < last and places[upcoming] <= stop:
                    stop, difference = places[upcoming], values[upcoming]
                    upcoming += 1
                row[at:stop] = value
                if stop == width:
                    return
                corner, top, at = top, above[stop], stop
                value = (_predicted(value, top, corner) + difference) & 255


def _predicted(left: int, above: int, corner: int) -> int:
    """PNG specification, 9.4: the one of them that is nearest to `left + above - corner`."""
    if left == above:
        return left
    to_left, to_above, to_corner = abs(above - corner), abs(left - corner), abs(left + above - 2 * corner)
    if to_left <= to_above and to_left <= to_corner:
        return left
    return above if to_above <= to_corner else corner
