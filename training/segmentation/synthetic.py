"""A batch made on the device: for the warm-up, and for trials that measure compute without storage."""

from __future__ import annotations

import torch

from training.common.step import Inputs
from training.segmentation.labels import IGNORED

_BLOCK_PX = 64  # regions about as large as those of a street scene
_IGNORED_PX = 8  # of the lower edge, as the hood of Cityscapes' own car


def synthetic_inputs(batch: int, crop: tuple[int, int], classes: int, device: torch.device) -> Inputs:
    """Normalised images (N, 3, h, w) and targets (N, h, w) uint8: blocks of every class, and 255 along the lower edge."""
    height, width = crop
    generator = torch.Generator(device).manual_seed(0)
    images = torch.randn(batch, 3, height, width, device=device, generator=generator)
    rows, columns = (torch.arange(side, device=device) // _BLOCK_PX for side in crop)
    blocks = rows[:, None] * (width // _BLOCK_PX + 1) + columns
    offsets = torch.arange(batch, device=device)[:, None, None]
    targets = ((blocks + offsets) % classes).to(torch.uint8)
    targets[:, -_IGNORED_PX:] = IGNORED
    return images, targets
