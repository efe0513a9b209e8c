"""The SSD loss (SSD, Liu et al. 2016, section 2.2): box regression plus classification with hard negatives."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

NEGATIVES_PER_POSITIVE = 3


def ssd_loss(offsets: Tensor, scores: Tensor, target_offsets: Tensor, target_labels: Tensor) -> Tensor:
    """The batch mean of each image's loss over its number of positives; an image without positives adds 0.

    `offsets` (N, 4, D) and `scores` (N, classes, D) are the model's; `target_offsets` (N, D, 4) and `target_labels`
    (N, D), 0 for background, are the encoder's. The negatives are the 3 x positives with the largest cross entropy.
    """
    labels = target_labels.long()
    positive = labels > 0
    positives = positive.sum(dim=1)
    distance = functional.smooth_l1_loss(offsets.float(), target_offsets.transpose(1, 2), reduction="none").sum(dim=1)
    entropy = functional.cross_entropy(scores.float(), labels, reduction="none")
    counted = positive | _hard_negatives(entropy.detach(), positive, positives)
    # where, not a product: a target that is not finite on a box that does not count must not reach the sum
    zero = distance.new_zeros(())
    per_image = torch.where(positive, distance, zero).sum(dim=1) + torch.where(counted, entropy, zero).sum(dim=1)
    return torch.where(positives > 0, per_image / positives.clamp(min=1), zero).mean()


def _hard_negatives(entropy: Tensor, positive: Tensor, positives: Tensor) -> Tensor:
    """(N, D) mask of the default boxes that rank among the 3 x positives highest in entropy, positives ranked last."""
    order = entropy.masked_fill(positive, -1.0).argsort(dim=1, descending=True)
    wanted = (NEGATIVES_PER_POSITIVE * positives).clamp(max=entropy.shape[1])
    among = torch.arange(entropy.shape[1], device=entropy.device) < wanted[:, None]
    return torch.empty_like(among).scatter_(1, order, among)
