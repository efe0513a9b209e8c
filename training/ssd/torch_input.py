"""The same input with torchvision on the CPU, for nodes without DALI and to check one by the other."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional

from training.common.loader import Plan
from training.common.pixels import MEAN, STD, decode
from training.common.reading import read_file
from training.ssd.boxes import IMAGE_SIZE, default_boxes, encode
from training.ssd.planner import Arguments

_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])  # NTSC, from RGB


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
            images.append(self._image(decode(content, path), given, index))
            boxes, classes = torch.from_numpy(given.boxes[index]), torch.from_numpy(given.labels[index])
            target, label = encode(boxes, classes, self._defaults)
            targets.append(target)
            labels.append(label)
            sizes.append(len(content))
        return (torch.stack(images), torch.stack(targets), torch.stack(labels)), sizes

    def _image(self, image: Tensor, given: Arguments, index: int) -> Tensor:
        _, height, width = image.shape
        left, top = (given.anchors[index] * (width, height)).round().astype(int).tolist()
        right, bottom = ((given.anchors[index] + given.shapes[index]) * (width, height)).round().astype(int).tolist()
        image = functional.resize(
            image[:, top : max(bottom, top + 1), left : max(right, left + 1)],
            [IMAGE_SIZE, IMAGE_SIZE],
            antialias=self._antialias,
        )
        coloured = torch.einsum("ij,jhw->ihw", _hsv(given.hues[index], given.saturations[index]), image.float())
        contrasted = 128 + given.contrasts[index] * (coloured.round().clamp(0, 255) - 128)
        image = (given.brightnesses[index] * contrasted).round().clamp(0, 255)
        if given.flips[index]:
            image = image.flip(2)
        return functional.normalize(image / 255, list(MEAN), list(STD))


def _hsv(hue: float, saturation: float) -> Tensor:
    """(3, 3): turns the chrominance by `hue` degrees and scales it by `saturation`, in YIQ."""
    angle = math.radians(hue)
    cosine, sine = saturation * math.cos(angle), saturation * math.sin(angle)
    turn = torch.tensor([[1.0, 0.0, 0.0], [0.0, cosine, sine], [0.0, -sine, cosine]])
    return torch.linalg.inv(_YIQ) @ turn @ _YIQ
