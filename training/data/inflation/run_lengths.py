"""The pixels of a COCO segmentation as runs down the columns (https://cocodataset.org/#format-data)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Runs:
    """(n,) columns, and the rows [first, end) in them, in px."""

    column: Numbers
    first: Numbers
    end: Numbers


def runs_of(segmentation: Any, width: int, height: int) -> Runs:
    """The runs of polygons or run lengths, compressed or not, in a picture of width x height px."""
    if isinstance(segmentation, list):
        segmentation = mask.merge(mask.frPyObjects(segmentation, height, width))
    counts = segmentation["counts"]
    lengths = np.array(counts, np.int64) if isinstance(counts, list) else _expanded(counts)
    bounds = np.cumsum(lengths)
    start, end = bounds[0:-1:2], bounds[1::2]
    return _by_column(start[end > start], end[end > start], height)


def _expanded(counts: str | bytes) -> Numbers:
    """Lengths from their text: 5 bits a character, low ones first, 32 where more follow, the last one's 16 the sign; from the
    fourth on, each is the difference to that before last (`maskApi.c`: rleFrString)."""
    characters = np.frombuffer(counts.encode() if isinstance(counts, str) else counts, np.uint8).astype(np.int64) - 48
    ends = np.flatnonzero(characters & 32 == 0)
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts + 1
    places = np.arange(characters.size) - np.repeat(starts, sizes)
    lengths = np.add.reduceat((characters & 31) << 5 * places, starts)
    lengths -= np.where(characters[ends] & 16, 1 << 5 * sizes, 0)
    for first in (1, 2):
        lengths[first::2] = np.cumsum(lengths[first::2])
    return lengths


def _by_column(start: Numbers, end: Numbers, height: int) -> Runs:
    """Runs across the ends of columns, cut there."""
    first_column, last_column = start // height, (end - 1) // height
    pieces = last_column - first_column + 1
    piece = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    column = np.repeat(first_column, pieces) + piece
    top = column * height
    first, stop = (np.repeat(places, pieces).clip(top, top + height) - top for places in (start, end))
    return Runs(column, first, stop)
