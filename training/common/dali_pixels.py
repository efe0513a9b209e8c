"""What both input graphs do to decoded pixels at last: colour, flip, normalise.

Colours are DALI's on a GPU and torch's on the CPU, where that takes a fraction of the time: the same map, which DALI rounds to
whole levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from nvidia.dali import fn, types
from torch import Tensor

from training.common.dali_loader import Graph
from training.common.loader import Plan
from training.common.pixels import BELOW_BLACK, MEAN, STD, Colours, finished


def pixel_graph(
    define: Callable[[Sequence[Any], SimpleNamespace], tuple[Any, ...]],
    files: int,
    arguments: Sequence[str],
    outputs: list[str],
    on_gpu: bool,
) -> Graph:
    """A graph whose first output is `normalised` images. On the CPU their colours are not DALI's to know."""
    if on_gpu:
        return Graph(define, files, arguments, outputs)
    return Graph(define, files, [name for name in arguments if name not in Colours._fields], outputs, _finish)


def normalised(images: Any, given: SimpleNamespace, on_gpu: bool, **crop: Any) -> Any:
    """Floats, channels first: for the backbone on a GPU, from 0 to 255 on the CPU, where `_finish` does the rest."""
    if on_gpu:
        images = fn.color_twist(
            images,
            hue=given.hues,
            saturation=given.saturations,
            brightness=given.brightnesses,
            contrast=given.contrasts,
        )
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


def _finish(tensors: tuple[Tensor, ...], plan: Plan) -> tuple[Tensor, ...]:
    images, *rest = tensors
    return finished(images, plan.arguments.colours), *rest
