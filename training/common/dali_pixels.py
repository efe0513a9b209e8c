"""What both input graphs do alike: decode JPEG on a GPU, and to pixels at last: colour there, flip, normalise.

On the CPU torch colours and normalises, in a fraction of the time: the same map, which DALI rounds to whole levels.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from nvidia.dali import fn, types

from training.common.pixels import BELOW_BLACK, MEAN, STD

# The whole of a batch to the GPU's JPEG unit, where it has one. By itself DALI gives a tenth to a decoder that takes the host's
# cores, which is slower here and rounds otherwise: a picture would depend on its place in the batch.
ALL_TO_JPEG_UNIT = 1.0


def coloured(images: Any, given: SimpleNamespace) -> Any:
    """Colours on a GPU."""
    return fn.color_twist(
        images, hue=given.hues, saturation=given.saturations, brightness=given.brightnesses, contrast=given.contrasts
    )


def normalised(images: Any, given: SimpleNamespace, on_gpu: bool, **crop: Any) -> Any:
    """Flipped floats, channels first: for the backbone on a GPU, from 0 to 255 on the CPU, where `pixels.finished` follows."""
    return fn.crop_mirror_normalize(
        images,
        mirror=given.flips,
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=[255 * value for value in MEAN] if on_gpu else [0.0],
        std=[255 * value for value in STD] if on_gpu else [1.0],
        **crop,
    )


def black(on_gpu: bool) -> list[float]:
    """What padding is filled with to become black."""
    return [-mean / std for mean, std in zip(MEAN, STD, strict=True)] if on_gpu else [BELOW_BLACK] * 3
