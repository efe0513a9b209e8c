"""From crops to the backbone's input with torch on the CPU, the same for both loaders."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torchvision.transforms.v2 import functional

from training.common.pixels import finished
from training.ssd.boxes import IMAGE_SIZE
from training.ssd.planner import Arguments


def backbone_inputs(crops: Sequence[Tensor], given: Arguments, antialias: bool) -> Tensor:
    """(B, 3, 300, 300) float32 of B crops (3, h, w) uint8, each of its own size: resized, flipped, coloured, normalised."""
    images = [functional.resize(crop, [IMAGE_SIZE, IMAGE_SIZE], antialias=antialias) for crop in crops]
    flipped = [image.flip(2) if flip else image for image, flip in zip(images, given.flips, strict=True)]
    return finished(flipped, given.colours)
