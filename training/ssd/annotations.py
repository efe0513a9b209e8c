"""What the SSD program takes from a COCO annotation file: classes, the images it trains on, their boxes and names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from training.data.indexing.index import open_index
from training.data.indexing.index_build import Index


@dataclass(frozen=True, eq=False)
class Annotations:
    """Images that are trained on: at least one box that is not crowd and not smaller than 0.1 px a side.

    `classes` are names in the order of the file's categories: class k (from 1; 0 is background) is `classes[k - 1]`;
    `category_ids` are the file's ids in the same order. `image_ids` is (n,) int64, read-only and mapped from a file
    that all processes of a node share; an index of an image counts along it from 0.
    """

    classes: list[str]
    category_ids: list[int]
    image_ids: np.ndarray
    images_without_box: int
    _index: Index = field(repr=False)

    def __len__(self) -> int:
        return len(self.image_ids)

    def name(self, index: int) -> str:
        """The file name of an image below the image folder."""
        return self._index.name(index)

    def boxes(self, index: int) -> np.ndarray:
        """(k, 4) float32 left, top, right, bottom as fractions of the image, clipped to 0..1; k > 0. A copy."""
        return self._index.boxes[self._span(index)].copy()

    def labels(self, index: int) -> np.ndarray:
        """(k,) int32 class numbers from 1, of the boxes in their order. A copy."""
        return self._index.labels[self._span(index)].copy()

    def names_without_box(self) -> list[str]:
        """File names of the images that are not trained on, for the byte totals."""
        return [self._index.name(len(self) + i) for i in range(self.images_without_box)]

    def _span(self, index: int) -> slice:
        offsets = self._index.box_offsets
        return slice(int(offsets[index]), int(offsets[index + 1]))


def open_annotations(json_path: Path, say: Callable[[str], None]) -> Annotations:
    """Opens the index of `instances_train2017.json`; the first process of a node makes it where there is none.

    No rank waits for another by a collective. `say` gets a plain line before and after what takes long. Raises
    UserError for annotations that cannot be trained on, and where the index can be written nowhere.
    """
    index = open_index(json_path, say)
    return Annotations(index.classes, index.category_ids, index.image_ids, index.images_without_box, index)
