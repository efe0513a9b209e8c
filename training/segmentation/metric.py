"""Intersection over union per class, as cityscapesScripts counts it (evalPixelLevelSemanticLabeling)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.segmentation.labels import CLASS_NAMES

_CLASSES = len(CLASS_NAMES)


@dataclass(frozen=True)
class IoU:
    """Fractions from 0 to 1: one per train id, None for a class that is not counted, and the mean of the others.

    The mean is None where no class is counted.
    """

    per_class: tuple[float | None, ...]
    mean: float | None


def empty_confusion(device: torch.device) -> Tensor:
    """(19, 19) int64 zeros on `device`, to be added to; matrices of several ranks may be summed."""
    return torch.zeros(_CLASSES, _CLASSES, dtype=torch.int64, device=device)


def add_to_confusion(confusion: Tensor, predictions: Tensor, targets: Tensor) -> None:
    """Counts pixels, in place: entry [t, p] is how many of train id t were predicted to be p.

    `predictions` (N, H, W) are train ids 0..18, `targets` (N, H, W) too, or 255 for a pixel that does not count; both
    of any integer type and on the device of `confusion`.
    """
    cells = targets.long() * _CLASSES + predictions.long()  # a target of 255 lies past the last cell
    cells = cells.flatten().clamp_(max=_CLASSES**2)
    counts = torch.bincount(cells, minlength=_CLASSES**2 + 1)
    confusion += counts[: _CLASSES**2].view(_CLASSES, _CLASSES)


def mean_iou(confusion: Tensor) -> IoU:
    """TP / (TP + FP + FN) per class, from a matrix of `add_to_confusion`.

    A class that no counted pixel has or was predicted to have is left out of the mean, as cityscapesScripts does.
    """
    matrix = confusion.cpu()
    hits = matrix.diagonal()
    unions = matrix.sum(dim=0) + matrix.sum(dim=1) - hits
    per_class = tuple(hit / union if union else None for hit, union in zip(hits.tolist(), unions.tolist(), strict=True))
    counted = [iou for iou in per_class if iou is not None]
    return IoU(per_class, sum(counted) / len(counted) if counted else None)
