"""The same input with torchvision on the CPU, for nodes without DALI and to check one by the other."""

from __future__ import annotations

import torch
from torch import Tensor

from training.common.loader import Plan
from training.common.pixels import decode
from training.common.reading import read_file
from training.ssd.boxes import default_boxes, encode
from training.ssd.pixels import backbone_inputs
from training.ssd.planner import Arguments


class TorchInput:
    """Carries out plans: `load` for TorchLoader."""

    def __init__(self, antialias: bool) -> None:
        self._antialias = antialias
        self._defaults = default_boxes()

    def __call__(self, plan: Plan) -> tuple[tuple[Tensor, ...], list[int]]:
        """Images (B, 3, 300, 300), offsets (B, 8732, 4) and labels (B, 8732), and each file's bytes. Raises UserError."""
        given = Arguments(*plan.arguments)
        images, targets, labels, sizes = [], [], [], []
        for index, path in enumerate(plan.files[0]):
            content = read_file(path)
            images.append(_crop(decode(content, path), given, index))
            boxes, classes = torch.from_numpy(given.boxes[index]), torch.from_numpy(given.labels[index])
            target, label = encode(boxes, classes, self._defaults)
            targets.append(target)
            labels.append(label)
            sizes.append(len(content))
        pixels = backbone_inputs(images, given, self._antialias)
        return (pixels, torch.stack(targets), torch.stack(labels)), sizes


def _crop(image: Tensor, given: Arguments, index: int) -> Tensor:
    _, height, width = image.shape
    left, top = (given.anchors[index] * (width, height)).round().astype(int).tolist()
    right, bottom = ((given.anchors[index] + given.shapes[index]) * (width, height)).round().astype(int).tolist()
    return image[:, top : max(bottom, top + 1), left : max(right, left + 1)]
