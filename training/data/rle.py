"""Instances of an id image as COCO run lengths, boxes and areas, in one pass over the pixels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask


@dataclass(frozen=True)
class Region:
    """The visible pixels of one id: their count, the box [x, y, w, h] in px that they just fill, compressed RLE."""

    value: int
    area: int
    bbox: tuple[int, int, int, int]
    counts: str


def regions(ids: NDArray[np.integer], smallest: int = 1) -> list[Region]:
    """The regions of all ids >= `smallest` of an image (height, width), sorted by id.

    COCO counts runs down the columns and across their ends, so the image is split into runs of equal ids in that
    order once, and each id's runs are gathered by one stable sort. An id's counts are the gaps before its runs and
    the runs in turn (https://cocodataset.org/#format-data, `maskApi.c`: rleEncode).
    """
    height, width = ids.shape
    pixels = ids.T.ravel()
    starts = np.concatenate(([0], np.flatnonzero(pixels[1:] != pixels[:-1]) + 1))
    ends = np.append(starts[1:], pixels.size)
    values = pixels[starts]

    kept = np.flatnonzero(values >= smallest)
    kept = kept[np.argsort(values[kept], kind="stable")]
    starts, ends, values = starts[kept], ends[kept], values[kept]
    bounds = [*np.flatnonzero(np.diff(values, prepend=-1)), values.size]

    found = []
    for first, last in pairwise(bounds):
        start, end = starts[first:last], ends[first:last]
        found.append(
            Region(
                value=int(values[first]),
                area=int((end - start).sum()),
                bbox=_box(start, end, height),
                counts=_compressed(start, end, height, width),
            )
        )
    return found


def _box(start: NDArray[np.integer], end: NDArray[np.integer], height: int) -> tuple[int, int, int, int]:
    left, right = int(start[0] // height), int((end[-1] - 1) // height)
    over_a_column_end = start // height != (end - 1) // height
    top = int(np.where(over_a_column_end, 0, start % height).min())
    bottom = int(np.where(over_a_column_end, height - 1, (end - 1) % height).max())
    return left, top, right - left + 1, bottom - top + 1


def _compressed(start: NDArray[np.integer], end: NDArray[np.integer], height: int, width: int) -> str:
    counts = np.empty(2 * start.size, dtype=np.uint32)
    counts[0::2] = start - np.concatenate(([0], end[:-1]))
    counts[1::2] = end - start
    if end[-1] < height * width:
        counts = np.append(counts, np.uint32(height * width - end[-1]))
    (rle,) = mask.frPyObjects([{"size": [height, width], "counts": counts}], height, width)
    text: str = rle["counts"].decode("ascii")
    return text
