"""A batch made on the device: for the warm-up, and for trials that measure compute without storage."""

from __future__ import annotations

import torch

from training.common.step import Inputs
from training.ssd.boxes import IMAGE_SIZE

_POSITIVES = 40  # about what a street scene with 17 boxes matches


def synthetic_inputs(batch: int, classes: int, defaults: int, device: torch.device) -> Inputs:
    """Normalised images (N, 3, 300, 300), offsets (N, D, 4) and labels (N, D) with 40 boxes matched in each image."""
    generator = torch.Generator(device).manual_seed(0)
    images = torch.randn(batch, 3, IMAGE_SIZE, IMAGE_SIZE, device=device, generator=generator)
    offsets = torch.randn(batch, defaults, 4, device=device, generator=generator)
    labels = torch.zeros(batch, defaults, dtype=torch.int32, device=device)
    classes_of_images = 1 + torch.arange(batch, dtype=torch.int32, device=device) % (classes - 1)
    labels[:, :: defaults // _POSITIVES] = classes_of_images[:, None]
    return images, offsets, labels
