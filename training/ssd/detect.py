"""From what the model says of its default boxes to detections (SSD, Liu et al. 2016, section 2.2, "inference").

The limits are the reference program's. As there, a box may leave the image.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torchvision.ops import box_convert, nms

from training.common.inference import Autocast
from training.common.pixels import MEAN, STD
from training.ssd.boxes import decode, default_boxes

MIN_SCORE = 0.05
NMS_IOU = 0.50
PER_CLASS = 200  # highest scores of a class that are looked at
PER_IMAGE = 200  # detections that an image may have

_FARTHEST = 1.0  # a box that leaves the image is cut where the next image of its size would end
_CLASS_STRIDE = 2 + 2 * _FARTHEST


@dataclass(frozen=True)
class Detections:
    """One image's `boxes` (k, 4) ltrb, `labels` (k,) from 1 and `scores` (k,), highest first; k is at most 200.

    Equal scores are in the order of their labels, then of their default boxes.
    """

    boxes: Tensor
    labels: Tensor
    scores: Tensor


class Detector:
    """From pixels on the host, (N, 3, 300, 300) uint8, to the detections of N images on the device."""

    def __init__(self, model: nn.Module, device: torch.device, autocast: Autocast, layout: torch.memory_format) -> None:
        self._model, self._device, self._autocast, self._layout = model, device, autocast, layout
        self._defaults = default_boxes().to(device)
        self._mean, self._std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (MEAN, STD))

    def __call__(self, pixels: Tensor) -> list[Detections]:
        if self._device.type == "cuda":
            pixels = pixels.pin_memory().to(self._device, non_blocking=True)
        images = (pixels.float() / 255 - self._mean) / self._std
        with self._autocast():
            offsets, scores = self._model(images.contiguous(memory_format=self._layout))
        return detections(offsets, scores, self._defaults)


def detections(offsets: Tensor, scores: Tensor, defaults_xywh: Tensor) -> list[Detections]:
    """What is seen in each image, given the model's offsets (N, 4, D) and class scores (N, classes, D), background at 0.

    Scores are made probabilities; those of at most 0.05, and those of boxes that are not finite, do not count.
    """
    count, classes, _ = scores.shape
    probabilities = scores.float().softmax(dim=1)[:, 1:]
    boxes = box_convert(decode(offsets.float().transpose(1, 2), defaults_xywh), "cxcywh", "xyxy")
    seen = (probabilities > MIN_SCORE) & boxes.isfinite().all(dim=2)[:, None]

    image, label, default = seen.nonzero(as_tuple=True)
    values = probabilities[image, label, default]
    chosen = _highest_of_each_class(values, image * classes + label)
    image, label, default, values = image[chosen], label[chosen] + 1, default[chosen], values[chosen]
    boxes = boxes[image, default].clamp(-_FARTHEST, 1 + _FARTHEST)
    kept = _without_overlaps(boxes, label, values, image.bincount(minlength=count).tolist())
    sizes = [len(indices) for indices in kept]
    columns = (column[torch.cat(kept)].split(sizes) for column in (boxes, label, values))
    return list(map(Detections, *columns))


def _highest_of_each_class(values: Tensor, groups: Tensor) -> Tensor:
    """Indices of the 200 highest `values` of each of `groups`, which ascend: group by group, from the highest."""
    order = values.argsort(descending=True, stable=True)
    by_group = order[groups[order].argsort(stable=True)]
    sizes = groups.bincount()
    place = torch.arange(len(groups), device=groups.device) - (sizes.cumsum(0) - sizes)[groups]
    return by_group[place < PER_CLASS]


def _without_overlaps(boxes: Tensor, labels: Tensor, scores: Tensor, sizes: list[int]) -> list[Tensor]:
    """Per image, `sizes` rows each: indices of what no higher score of its class overlaps by more than 0.50 IoU.

    They are sorted by score. Every class is moved to a place of its own, so that one call serves all; in float64, where
    this loses nothing.
    """
    apart = (boxes.double() + _CLASS_STRIDE * labels.double()[:, None]).split(sizes)
    starts = itertools.accumulate(sizes, initial=0)
    parts = zip(starts, apart, scores.double().split(sizes), strict=False)
    return [start + nms(part, score, NMS_IOU)[:PER_IMAGE] for start, part, score in parts]
