"""A frame's objects, moved as its variants' label images are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.data.errors import DataError
from training.data.inflation.geometry import Geometry
from training.data.inflation.run_lengths import Runs, runs_of


class Objects:
    """The objects of a frame of width x height px, from its COCO annotations with RLE or polygons.

    Raises DataError for an annotation without segmentation.
    """

    def __init__(self, annotations: Sequence[dict[str, Any]], width: int, height: int) -> None:
        self._width, self._height = width, height
        self._kinds = [(annotation["category_id"], annotation["iscrowd"]) for annotation in annotations]
        runs = [_runs(annotation, width, height) for annotation in annotations]
        self._owner = np.repeat(np.arange(len(runs)), [run.column.size for run in runs])
        self._column, self._first, self._end = (
            np.concatenate([np.empty(0, np.int64), *(getattr(run, part) for run in runs)])
            for part in ("column", "first", "end")
        )

    def moved(self, geometry: Geometry) -> list[dict[str, Any]]:
        """The annotations of a variant: category_id, bbox [x, y, w, h] in px, area in px, iscrowd.

        They are exactly those of the variant's label image, cut or not. An object without a pixel in it is left out. The
        order is that of the frame's annotations.
        """
        # before[i]: the variant's columns (rows) that come from columns (rows) of the frame below i.
        columns_before = _before(geometry.columns(self._width), self._width)
        rows_before = _before(geometry.rows(self._height), self._height)
        left, right = columns_before[self._column], columns_before[self._column + 1]
        top, bottom = rows_before[self._first], rows_before[self._end]
        seen = np.flatnonzero((right > left) & (bottom > top))
        if not seen.size:
            return []
        left, right, top, bottom, owner = (values[seen] for values in (left, right, top, bottom, self._owner))
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        left_x, top_y = np.minimum.reduceat(left, starts), np.minimum.reduceat(top, starts)
        right_x, bottom_y = np.maximum.reduceat(right, starts), np.maximum.reduceat(bottom, starts)
        area = np.add.reduceat((right - left) * (bottom - top), starts)
        if geometry.flip:
            left_x, right_x = self._width - right_x, self._width - left_x
        bbox = np.stack((left_x, top_y, right_x - left_x, bottom_y - top_y), axis=1)
        kinds = (self._kinds[index] for index in owner[starts])
        return [
            {"category_id": category, "bbox": box, "area": pixels, "iscrowd": crowd}
            for (category, crowd), box, pixels in zip(kinds, bbox.tolist(), area.tolist(), strict=True)
        ]


def _before(sources: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    return np.concatenate(([0], np.cumsum(np.bincount(sources, minlength=count))))


def _runs(annotation: dict[str, Any], width: int, height: int) -> Runs:
    segmentation = annotation.get("segmentation")
    if not segmentation:
        raise DataError(
            f"annotation {annotation['id']} of image {annotation['image_id']} has no segmentation, which tells what of the "
            "object is still seen where a variant cuts it; convert the base set anew, with masks"
        )
    return runs_of(segmentation, width, height)
