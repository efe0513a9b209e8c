"""The labels of Cityscapes: ids in mask files, train ids, names and colours (cityscapesscripts.helpers.labels)."""

from __future__ import annotations

import numpy as np
from cityscapesscripts.helpers.labels import labels as _labels

from training.common.errors import UserError

IGNORED = 255  # the train id of a pixel that neither training nor evaluation counts

_CLASSES = sorted((label for label in _labels if label.trainId not in (-1, IGNORED)), key=lambda label: label.trainId)

CLASS_NAMES: tuple[str, ...] = tuple(label.name for label in _CLASSES)
CLASS_COLORS: tuple[tuple[int, int, int], ...] = tuple(label.color for label in _CLASSES)
LABEL_IDS: tuple[int, ...] = tuple(label.id for label in _CLASSES)

_IDS = (*(label.id for label in _labels), 255)  # a mask has 8 bits, so -1 (license plate) is 255 there

TRAIN_IDS: np.ndarray = np.full(256, IGNORED, np.uint8)
"""(256,) uint8: `TRAIN_IDS[mask]` maps a mask of label ids to train ids 0..18, and 255 where nothing is learned."""
TRAIN_IDS[list(LABEL_IDS)] = range(len(LABEL_IDS))
TRAIN_IDS.setflags(write=False)


def check_ids(ids: np.ndarray, where: str) -> None:
    """Raises UserError naming `where`, a mask's file say, and the smallest of `ids` that is no label of Cityscapes.

    `ids` are whole numbers in any shape. 0 to 33 are labels, and so is -1, of which an 8-bit mask makes 255.
    """
    unknown = ids[~np.isin(ids, _IDS)]
    if unknown.size:
        raise UserError(
            f"{where}: label id {unknown.min()} is not one of Cityscapes (0 to 33, 255 for -1); "
            "masks must be *_gtFine_labelIds.png, not instanceIds or color"
        )
