"""The plan of a batch of SSD: files, crops, flips, colours and the boxes that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from training.common.loader import Plan
from training.common.pixels import Colours, decode
from training.common.reading import read_file
from training.common.sampler import Share
from training.ssd.annotations import Annotations
from training.ssd.augment import NUMBERS, Floats, augment


class Arguments(NamedTuple):
    """For B images: crops as anchors and shapes (B, 2), fractions of the image; the rest as in Augmentation."""

    anchors: Floats
    shapes: Floats
    flips: np.ndarray
    hues: Floats
    saturations: Floats
    brightnesses: Floats
    contrasts: Floats
    boxes: list[Floats]
    labels: list[np.ndarray]

    @property
    def colours(self) -> Colours:
        return Colours(self.hues, self.saturations, self.brightnesses, self.contrasts)


class Planner:
    """Plans with augmentation, or without: whole images as they are."""

    def __init__(self, images: Path, annotations: Annotations, augmented: bool = True) -> None:
        self.items = len(annotations)
        self._images, self._annotations, self._augmented = images, annotations, augmented

    def plan(self, shares: Sequence[Share]) -> list[Plan]:
        annotations, items = self._annotations, [item for share in shares for item in share.items.tolist()]
        arguments = self._arguments(shares, items)
        plans, first = [], 0
        for share in shares:
            part = slice(first, first + len(share.items))
            first = part.stop
            plan = Plan(
                share=share,
                image_ids=[int(annotations.image_ids[item]) for item in items[part]],
                files=([self._images / annotations.name(item) for item in items[part]],),
                arguments=Arguments(*(column[part] for column in arguments)),
            )
            plans.append(plan)
        return plans

    def inspect(self, plan: Plan) -> None:
        for path in plan.files[0]:
            decode(read_file(path), path)

    def _arguments(self, shares: Sequence[Share], items: list[int]) -> Arguments:
        boxes = [self._annotations.boxes(item) for item in items]
        labels = [self._annotations.labels(item) for item in items]
        if not self._augmented:
            count = len(items)
            zeros, ones = np.zeros(count, np.float32), np.ones(count, np.float32)
            corner, whole, no_flip = (
                np.zeros((count, 2), np.float32),
                np.ones((count, 2), np.float32),
                zeros.astype(np.int32),
            )
            return Arguments(corner, whole, no_flip, zeros, ones, ones, ones, boxes, labels)
        done = augment(np.concatenate([share.uniforms(NUMBERS) for share in shares]), boxes, labels)
        return Arguments(
            anchors=np.ascontiguousarray(done.crops[:, :2]),
            shapes=done.crops[:, 2:] - done.crops[:, :2],
            flips=done.flips,
            hues=done.hues,
            saturations=done.saturations,
            brightnesses=done.brightnesses,
            contrasts=done.contrasts,
            boxes=done.boxes,
            labels=done.labels,
        )
