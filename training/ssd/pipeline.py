"""The input pipeline in NVIDIA DALI: decode the crop, resize, colour, normalise, flip, encode boxes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from nvidia.dali import fn, types
from torchvision.ops import box_convert

from training.common.dali_loader import Graph
from training.common.dali_pixels import normalised, pixel_graph
from training.ssd.boxes import IMAGE_SIZE, MATCH_IOU, SCALE_WH, SCALE_XY, default_boxes
from training.ssd.planner import Arguments

OUTPUTS = ["images", "offsets", "labels"]


def graph(device: torch.device, antialias: bool, jpeg: bool) -> Graph:
    """The graph for DaliLoader. On a GPU, JPEG is decoded there; DALI decodes PNG on the CPU wherever it is asked to."""
    on_gpu = device.type == "cuda"

    def define(files: Sequence[Any], given: SimpleNamespace) -> tuple[Any, ...]:
        images = fn.decoders.image_slice(
            files[0], given.anchors, given.shapes, device="mixed" if on_gpu and jpeg else "cpu", output_type=types.RGB
        )
        if on_gpu and not jpeg:
            images = images.gpu()
        images = _resized(images, antialias, on_gpu)
        images = normalised(images, given, on_gpu)
        offsets, labels = fn.box_encoder(
            given.boxes,
            given.labels,
            anchors=box_convert(default_boxes(), "cxcywh", "xyxy").flatten().tolist(),
            criteria=MATCH_IOU,
            offset=True,
            scale=1.0,
            stds=[SCALE_XY, SCALE_XY, SCALE_WH, SCALE_WH],
        )
        return (images, offsets.gpu(), labels.gpu()) if on_gpu else (images, offsets, labels)

    return pixel_graph(define, 1, Arguments._fields, OUTPUTS, on_gpu)


def _resized(images: Any, antialias: bool, on_gpu: bool) -> Any:
    """To 300x300. On the CPU by the way that is fastest there; the result differs by a level at most.

    Filtering rows first and columns then takes half the time of DALI's choice for wide images (`benchmarks/ssd_input.py`).
    """
    if on_gpu:
        return fn.resize(images, size=[IMAGE_SIZE, IMAGE_SIZE], antialias=antialias)
    if antialias:
        low = fn.resize(images, resize_y=IMAGE_SIZE, mode="stretch", antialias=True)
        return fn.resize(low, resize_x=IMAGE_SIZE, mode="stretch", antialias=True)
    sides = fn.cast(images.shape(), dtype=types.FLOAT) / IMAGE_SIZE
    height, width = (fn.slice(sides, axis, 1, axes=[0]) for axis in (0, 1))
    scaling = fn.reshape(fn.cat(width, 0 * width, 0 * width, 0 * width, height, 0 * width, axis=0), shape=[2, 3])
    return fn.warp_affine(images, matrix=scaling, size=[IMAGE_SIZE, IMAGE_SIZE], interp_type=types.INTERP_LINEAR)
