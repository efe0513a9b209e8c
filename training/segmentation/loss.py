"""Cross entropy over pixels."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from training.segmentation.labels import IGNORED


def segmentation_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean of the pixels' cross entropies, a float32 scalar in nats, also within autocast.

    `scores` (N, classes, H, W) are the model's, `targets` (N, H, W) train ids of any integer type; pixels of 255 do
    not count, and a batch that has no other gives 0, with a gradient of 0.
    """
    labels = targets.long()
    total = functional.cross_entropy(scores.float(), labels, ignore_index=IGNORED, reduction="sum")
    return total / (labels != IGNORED).sum().clamp(min=1)
