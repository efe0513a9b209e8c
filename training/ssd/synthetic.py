"""Batches made on the device: for the warm-up, and for trials that measure compute without storage."""

from __future__ import annotations

import torch

from training.common.loader import Batch, Usage
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


class SyntheticLoader:
    """The same batch again and again; opens no file."""

    def __init__(self, inputs: Inputs, steps_per_pass: int) -> None:
        self.steps_per_pass = steps_per_pass
        self._batch = Batch(inputs, images=len(inputs[0]), padded_images=0)

    def next_batch(self) -> Batch:
        return self._batch

    def usage(self) -> Usage:
        return Usage(distinct_files=0, distinct_bytes=0, first_pass_distinct_bytes=0, prefetched_images=0)
