"""Instances of an id image as boxes, areas and COCO run lengths, from the places where ids change."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pycocotools import mask


@dataclass(frozen=True, eq=False)
class Runs:
    """The runs of equal ids of an image (height, width), down its columns and across their ends, sorted by id.

    `starts` and `ends` (n,) count px in that order; the runs of `values[i]`, of m different ones in rising order, are
    those from `bounds[i]` to `bounds[i + 1]`.
    """

    height: int
    width: int
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    values: list[int]
    bounds: list[int]


@dataclass(frozen=True)
class Region:
    """The visible pixels of one id: their count, and the box [x, y, w, h] in px that they just fill."""

    value: int
    area: int
    bbox: tuple[int, int, int, int]


def id_runs(ids: NDArray[np.integer], smallest: int = 1) -> Runs:
    """The runs of all ids >= `smallest` of an image (height, width).

    COCO counts down the columns, so a run begins where an id differs from the one above it, at the top from the one at
    the bottom of the column before. Rows are compared as they lie in memory, and only these places are then sorted.
    """
    height, width = ids.shape
    bits = ids.view(ids.dtype.newbyteorder("="))  # equal or not, in whatever order the bytes are
    rows, columns = np.divmod(np.flatnonzero(bits[1:] != bits[:-1]), width)
    tops = np.flatnonzero(bits[0, 1:] != bits[-1, :-1]) + 1
    starts = np.concatenate(([0], tops * height, columns * height + rows + 1))
    starts.sort()
    ends = np.append(starts[1:], ids.size)
    values = ids[starts % height, starts // height].astype(np.int32)

    kept = np.flatnonzero(values >= smallest)
    kept = kept[np.argsort(values[kept], kind="stable")]
    values = values[kept]
    firsts = np.flatnonzero(np.diff(values, prepend=-1))
    bounds = [*firsts.tolist(), values.size]
    return Runs(height, width, starts[kept], ends[kept], values[firsts].tolist(), bounds)


def regions(runs: Runs) -> list[Region]:
    """The regions of all ids, sorted by id."""
    if not runs.values:
        return []
    height, firsts = runs.height, runs.bounds[:-1]
    left, top = np.divmod(runs.starts, height)
    right, bottom = np.divmod(runs.ends - 1, height)
    across = right > left
    areas = np.add.reduceat(runs.ends - runs.starts, firsts)
    lefts = np.minimum.reduceat(left, firsts)
    tops = np.minimum.reduceat(np.where(across, 0, top), firsts)
    widths = np.maximum.reduceat(right, firsts) - lefts + 1
    heights = np.maximum.reduceat(np.where(across, height - 1, bottom), firsts) - tops + 1
    columns = (column.tolist() for column in (areas, lefts, tops, widths, heights))
    return [Region(value, area, tuple(box)) for value, area, *box in zip(runs.values, *columns, strict=True)]


def compressed(runs: Runs, numbers: list[int]) -> list[str]:
    """The compressed RLE of the ids `runs.values[number]`, for each of `numbers`.

    Its counts are the gaps before an id's runs and the runs in turn (https://cocodataset.org/#format-data,
    `maskApi.c`: rleEncode).
    """
    size = [runs.height, runs.width]
    plain = [{"size": size, "counts": _counts(runs, number)} for number in numbers]
    return [rle["counts"].decode("ascii") for rle in mask.frPyObjects(plain, *size)] if plain else []


def _counts(runs: Runs, number: int) -> NDArray[np.uint32]:
    start, end = (edge[runs.bounds[number] : runs.bounds[number + 1]] for edge in (runs.starts, runs.ends))
    counts = np.empty(2 * start.size, dtype=np.uint32)
    counts[0] = start[0]
    counts[2::2] = start[1:] - end[:-1]
    counts[1::2] = end - start
    left_over = runs.height * runs.width - end[-1]
    return np.append(counts, np.uint32(left_over)) if left_over else counts
