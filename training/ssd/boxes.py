"""Default boxes of SSD300 and the mapping between boxes and regression targets (SSD, Liu et al. 2016, section 2).

Boxes are fractions of the image. `ltrb` is left, top, right, bottom; `xywh` is centre x, centre y, width, height.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor
from torchvision.ops import box_convert, box_iou

IMAGE_SIZE = 300
FEATURE_SIZES = (38, 19, 10, 5, 3, 1)
BOXES_PER_CELL = (4, 6, 6, 6, 4, 4)
SCALE_XY = 0.1
SCALE_WH = 0.2
MATCH_IOU = 0.5

_STEPS = (8, 16, 32, 64, 100, 300)
_SIZES = (21, 45, 99, 153, 207, 261, 315)
_RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))


def default_boxes() -> Tensor:
    """(8732, 4) xywh, clamped to 0..1. Order: feature map, then shape of box, then cell, row by row."""
    boxes = []
    for level, cells in enumerate(FEATURE_SIZES):
        span = IMAGE_SIZE / _STEPS[level]
        for width, height in _shapes(level):
            for row, column in itertools.product(range(cells), repeat=2):
                boxes.append(((column + 0.5) / span, (row + 0.5) / span, width, height))
    return torch.tensor(boxes).clamp_(0, 1)


def _shapes(level: int) -> list[tuple[float, float]]:
    size, larger = _SIZES[level] / IMAGE_SIZE, _SIZES[level + 1] / IMAGE_SIZE
    middle = math.sqrt(size * larger)
    shapes = [(size, size), (middle, middle)]
    for ratio in _RATIOS[level]:
        width, height = size * math.sqrt(ratio), size / math.sqrt(ratio)
        shapes += [(width, height), (height, width)]
    return shapes


def offsets(boxes_xywh: Tensor, defaults_xywh: Tensor) -> Tensor:
    """(..., 4) regression targets: 10 (c - dc) / d_wh and 5 ln(wh / d_wh)."""
    centre = (boxes_xywh[..., :2] - defaults_xywh[..., :2]) / defaults_xywh[..., 2:] / SCALE_XY
    size = torch.log(boxes_xywh[..., 2:] / defaults_xywh[..., 2:]) / SCALE_WH
    return torch.cat((centre, size), dim=-1)


def decode(targets: Tensor, defaults_xywh: Tensor) -> Tensor:
    """(..., 4) xywh boxes of regression targets: the inverse of `offsets`."""
    centre = targets[..., :2] * SCALE_XY * defaults_xywh[..., 2:] + defaults_xywh[..., :2]
    size = torch.exp(targets[..., 2:] * SCALE_WH) * defaults_xywh[..., 2:]
    return torch.cat((centre, size), dim=-1)


def encode(boxes_ltrb: Tensor, labels: Tensor, defaults_xywh: Tensor) -> tuple[Tensor, Tensor]:
    """Targets (8732, 4) and labels (8732,) of an image's (n, 4) boxes and (n,) labels; n is at least 1.

    A default box is matched to the box with which it overlaps most, if by more than 0.5 IoU; and each box keeps the
    default box that overlaps it most. Unmatched ones have label 0 (background) and target 0.
    """
    iou = box_iou(boxes_ltrb, box_convert(defaults_xywh, "cxcywh", "xyxy"))
    best_iou, best_box = iou.max(dim=0)
    kept = iou.argmax(dim=1)
    best_iou[kept] = 2.0
    best_box[kept] = torch.arange(len(boxes_ltrb))
    matched = best_iou > MATCH_IOU
    targets = offsets(box_convert(boxes_ltrb, "xyxy", "cxcywh")[best_box], defaults_xywh)
    return targets * matched[:, None], labels[best_box] * matched
