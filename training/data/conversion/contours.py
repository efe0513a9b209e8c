"""Regions as COCO polygons that decode to the same pixels: their contours, along the edges of pixels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from training.data.conversion.rle import Runs

Corner = tuple[int, int]  # x, y in px: (0, 0) is the left upper corner of the first pixel


def polygons(runs: Runs, number: int) -> list[list[int]]:
    """The polygons [x, y, x, y, ...] in px of the id `runs.values[number]`, for each of its pieces one.

    COCO has no holes: one is cut out by a line of no width that leads from the contour around to it and back.
    """
    pixels, left, top = _pixels(runs, number)
    outer: list[list[Corner]] = []
    for ring in _rings(pixels):
        x, y = ring[0]
        if pixels[y + 1, x + 1]:
            outer.append(ring)
        else:
            _cut_out(ring, outer)
    return [[number for x, y in ring for number in (x + left, y + top)] for ring in outer]


def _pixels(runs: Runs, number: int) -> tuple[NDArray[np.bool_], int, int]:
    """Which pixels a region has, in the box around it and one pixel more, and where that box is."""
    start, end = (edge[runs.bounds[number] : runs.bounds[number + 1]] for edge in (runs.starts, runs.ends))
    left, right = int(start[0]) // runs.height, int(end[-1] - 1) // runs.height + 1
    changes = np.zeros((right - left) * runs.height + 1, np.int8)
    changes[start - left * runs.height] = 1
    changes[end - left * runs.height] -= 1
    columns = np.cumsum(changes[:-1], dtype=np.int8).reshape(right - left, runs.height).astype(np.bool_)
    filled = np.flatnonzero(columns.any(axis=0))
    top, bottom = int(filled[0]), int(filled[-1]) + 1
    return np.pad(columns[:, top:bottom].T, 1), left, top


def _rings(pixels: NDArray[np.bool_]) -> list[list[Corner]]:
    """The contours, each from its leftmost corner on (of these the uppermost), in the order of these corners.

    Corners of contours are where an odd number of four pixels is in the region, and twice where two are that touch
    only there. Sorted by columns, each two that follow each other are ends of an upright edge; by rows, of a level one.
    """
    upper_left, upper_right = pixels[:-1, :-1], pixels[:-1, 1:]
    lower_left, lower_right = pixels[1:, :-1], pixels[1:, 1:]
    is_corner = upper_left ^ upper_right ^ lower_left ^ lower_right
    is_crossing = (upper_left == lower_right) & (upper_right == lower_left) & (upper_left != upper_right)
    x, y = np.nonzero((is_corner | is_crossing).T)
    times = 1 + is_crossing[y, x]
    x, y = np.repeat(x, times), np.repeat(y, times)
    by_row = np.lexsort((x, y)).tolist()
    level = [0] * len(by_row)
    for one, other in zip(by_row[::2], by_row[1::2], strict=True):
        level[one], level[other] = other, one

    corners = list(zip(x.tolist(), y.tolist(), strict=True))
    rings, is_used = [], [False] * len(corners)
    for first in range(len(corners)):
        ring, at = [], first
        while not is_used[at]:
            upright = at ^ 1
            is_used[at] = is_used[upright] = True
            ring += [corners[at], corners[upright]]
            at = level[upright]
        if ring:
            rings.append(ring)
    return rings


def _cut_out(hole: list[Corner], outer: list[list[Corner]]) -> None:
    """Puts a hole into the contour that is the next on its left."""
    x, y = hole[0]
    edges = (
        (corner[0], ring, place)
        for ring in outer
        for place, (corner, following) in enumerate(zip(ring, ring[1:] + ring[:1], strict=True), start=1)
        if corner[0] == following[0] < x and min(corner[1], following[1]) <= y < max(corner[1], following[1])
    )
    nearest, ring, place = max(edges, key=lambda edge: edge[0])
    ring[place:place] = [(nearest, y), *hole, hole[0], (nearest, y)]
