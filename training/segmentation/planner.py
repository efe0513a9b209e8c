"""The plan of a batch of segmentation: files of images and masks, and how both are scaled, cropped and coloured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.common.loader import Plan
from training.common.sampler import Share
from training.segmentation.augment import NUMBERS, Ranges, augment
from training.segmentation.centroids import Centroids
from training.segmentation.dataset import SegmentationSet
from training.segmentation.pairs import read_pair


class Planner:
    """Plans for items that are codes of `centroids`, or without it indices of images."""

    def __init__(self, data: SegmentationSet, centroids: Centroids | None, ranges: Ranges) -> None:
        self.items = len(data)
        self._data, self._centroids, self._ranges = data, centroids, ranges

    def plan(self, shares: Sequence[Share]) -> list[Plan]:
        return [self._plan(share) for share in shares]

    def inspect(self, plan: Plan) -> None:
        for image, mask in zip(*plan.files, strict=True):
            read_pair(image, mask)

    def _plan(self, share: Share) -> Plan:
        if self._centroids is None:
            count = len(share.items)
            machine_items, points, has_point = share.machine_items, np.zeros((count, 2)), np.zeros(count, dtype=bool)
        else:
            machine_items, _, _ = self._centroids.locate(share.machine_items)
            _, points, has_point = self._centroids.locate(share.items)
        indices = machine_items[share.row].tolist()
        return Plan(
            share=share,
            image_ids=[self._data.name(index) for index in indices],
            files=([self._data.image(index) for index in indices], [self._data.mask(index) for index in indices]),
            arguments=augment(share.uniforms(NUMBERS), points, has_point, self._ranges),
            machine_items=machine_items,
        )
