"""An image and its mask, read together and checked against each other."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from torch import Tensor

from training.common.errors import UserError
from training.common.pixels import decode
from training.common.reading import read_file
from training.segmentation.dataset import decode_mask
from training.segmentation.labels import check_ids


class Decoded(NamedTuple):
    """`image` (3, H, W) uint8 RGB, `mask` (H, W) uint8 label ids, and the bytes of both files."""

    image: Tensor
    mask: np.ndarray
    bytes: int


def read_pair(image_path: Path, mask_path: Path) -> Decoded:
    """Raises UserError naming a file that cannot be used, also for sizes that differ and ids that are no labels."""
    image_file, mask_file = read_file(image_path), read_file(mask_path)
    image, mask = decode(image_file, image_path), decode_mask(mask_file, mask_path)
    if image.shape[1:] != mask.shape:
        (height, width), (mask_height, mask_width) = image.shape[1:], mask.shape
        raise UserError(
            f"{mask_path} has {mask_width} x {mask_height} pixels, and its image {image_path} {width} x {height}; "
            "put the mask back that belongs to the image, or take both out of the data set"
        )
    check_ids(np.flatnonzero(np.bincount(mask.ravel(), minlength=256)), str(mask_path))
    return Decoded(image, mask, len(image_file) + len(mask_file))
