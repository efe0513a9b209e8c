"""The same input with PIL and torch on the CPU, for nodes without DALI and to check one by the other."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import grid_sample

from training.common.loader import Plan
from training.common.pixels import BELOW_BLACK, finished
from training.segmentation.augment import NEAREST_SHIFT, NUMPY, Augmentation, window
from training.segmentation.labels import IGNORED, TRAIN_IDS
from training.segmentation.pairs import read_pair


class TorchInput:
    """Carries out plans: `load` for TorchLoader."""

    def __init__(self, crop: tuple[int, int], antialias: bool) -> None:
        self._crop, self._antialias = crop, antialias

    def __call__(self, plan: Plan) -> tuple[tuple[Tensor, ...], list[int]]:
        """Images (B, 3, h, w), targets (B, h, w) uint8, and the bytes of each image and its mask. Raises UserError."""
        given = Augmentation(*plan.arguments)
        images, targets, sizes = [], [], []
        for index, (image_path, mask_path) in enumerate(zip(*plan.files, strict=True)):
            read = read_pair(image_path, mask_path)
            image, target = self._pair(read.image, read.mask, Augmentation(*(values[index] for values in given)))
            images.append(image)
            targets.append(target)
            sizes.append(read.bytes)
        return (finished(images, given.colours), torch.stack(targets)), sizes

    def _pair(self, image: Tensor, mask: np.ndarray, given: Augmentation) -> tuple[Tensor, Tensor]:
        source, crop = np.array(mask.shape, np.float64), np.array(self._crop, np.float64)
        found = window(source, crop, given.scales, given.points, given.reaches, given.places, NUMPY)
        start, end, size = found.corner + found.start, found.corner + found.end, found.size.astype(int)
        top, left = found.before.astype(int)
        inside = (..., slice(top, top + size[0]), slice(left, left + size[1]))

        pixels = torch.full((3, *self._crop), BELOW_BLACK)
        pixels[inside] = _resized(image, start, end, size, self._antialias)
        target = torch.full(self._crop, IGNORED, dtype=torch.uint8)
        target[inside] = torch.from_numpy(TRAIN_IDS[_nearest(mask, start, end, size)])
        if given.flips:
            pixels, target = pixels.flip(2), target.flip(1)
        return pixels, target


def _resized(image: Tensor, start: np.ndarray, end: np.ndarray, size: np.ndarray, antialias: bool) -> Tensor:
    """(3, h, w): the pixels from `start` to `end`, which are no whole numbers, as `size` pixels."""
    if antialias:
        whole = Image.fromarray(image.permute(1, 2, 0).numpy())
        box = (start[1], start[0], end[1], end[0])
        part = whole.resize((int(size[1]), int(size[0])), Image.Resampling.BILINEAR, box=box)
        return torch.from_numpy(np.array(part)).permute(2, 0, 1).float()
    rows, columns = (  # from -1 to 1 over the image
        torch.from_numpy(2 * _centres(start[axis], end[axis], size[axis]) / image.shape[1 + axis] - 1).float()
        for axis in (0, 1)
    )
    grid = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), dim=2)
    return grid_sample(image[None].float(), grid[None], padding_mode="border", align_corners=False)[0].round()


def _nearest(mask: np.ndarray, start: np.ndarray, end: np.ndarray, size: np.ndarray) -> np.ndarray:
    rows, columns = (
        np.floor(_centres(start[axis], end[axis], size[axis]) + NEAREST_SHIFT).astype(int) for axis in (0, 1)
    )
    return mask[rows[:, None], columns]


def _centres(start: float, end: float, size: int) -> np.ndarray:
    return start + (np.arange(size) + 0.5) * (end - start) / size
