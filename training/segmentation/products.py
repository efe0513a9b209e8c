"""Two operators as matrix products, for GPUs: there cuDNN is slow at what the plain ones ask for.

Widely dilated convolutions reach little more than half of what a product of the same size does, and the gradient of
bilinear resizing is added up by atomic operations.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

_FEW_CHANNELS = 64  # products over so few are slow: the map's lines are the better inner dimension


def convolutions_as_one_product(x: Tensor, convolutions: Sequence[nn.Conv2d]) -> list[Tensor]:
    """What convolutions of one input give: (N, inputs, h, w) to (N, outputs, h, w) each.

    They have square kernels of odd sides, stride 1, no bias, and a padding that keeps the size. A 1x1 convolution
    computes what each tap of each kernel has to add; then the taps are shifted and summed.
    """
    height, width = x.shape[2:]
    taps = [weight for convolution in convolutions for weight in convolution.weight.flatten(2).unbind(2)]
    products = functional.conv2d(x, torch.cat(taps)[:, :, None, None])
    parts = iter(products.split([len(tap) for tap in taps], dim=1))
    results = []
    for convolution in convolutions:
        reach, step = convolution.kernel_size[0] // 2, convolution.dilation[0]
        shifts = [step * tap for tap in range(-reach, reach + 1)]
        total = None
        for down in shifts:
            for right in shifts:
                part = next(parts)
                if abs(down) < height and abs(right) < width:
                    shifted = functional.pad(part, (-right, right, -down, down)) if down or right else part
                    total = shifted if total is None else total + shifted
        assert total is not None
        results.append(total)
    return results


def resize_as_products(x: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear `interpolate` without aligned corners: (N, C, h, w) to (N, C, *size)."""
    rows, columns = (_weights(old, new, x) for old, new in zip(x.shape[2:], size, strict=True))
    if x.shape[1] < _FEW_CHANNELS or not x.is_contiguous(memory_format=torch.channels_last):
        return rows @ x @ columns.T
    batch, channels, height, _ = x.shape
    wide = columns @ x.permute(0, 2, 3, 1)
    tall = rows @ wide.reshape(batch, height, size[1] * channels)
    return tall.reshape(batch, *size, channels).permute(0, 3, 1, 2)


def _weights(old: int, new: int, like: Tensor) -> Tensor:
    """(new, old): what each pixel of a resized line takes from each old one."""
    identity = torch.eye(old, device=like.device)[None]
    return functional.interpolate(identity, size=new, mode="linear", align_corners=False)[0].T.to(like.dtype)
