"""The input pipeline in NVIDIA DALI: decode the crop, resize, colour, normalise, flip, encode boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from nvidia.dali import fn, types
from torchvision.ops import box_convert

from training.common.pixels import MEAN, STD
from training.ssd.boxes import IMAGE_SIZE, MATCH_IOU, SCALE_WH, SCALE_XY, default_boxes
from training.ssd.planner import Arguments

OUTPUTS = ["images", "offsets", "labels"]
INPUTS = 1 + len(Arguments._fields)


def graph(device: torch.device, antialias: bool, jpeg: bool) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """The graph for DaliLoader. On a GPU, JPEG is decoded there; DALI decodes PNG on the CPU wherever it is asked to."""
    on_gpu = device.type == "cuda"

    def define(nodes: Sequence[Any]) -> tuple[Any, ...]:
        files, given = nodes[0], Arguments(*nodes[1:])
        images = fn.decoders.image_slice(
            files, given.anchors, given.shapes, device="mixed" if on_gpu and jpeg else "cpu", output_type=types.RGB
        )
        if on_gpu and not jpeg:
            images = images.gpu()
        images = fn.resize(images, size=[IMAGE_SIZE, IMAGE_SIZE], antialias=antialias)
        images = fn.hsv(images, hue=given.hues, saturation=given.saturations)
        images = fn.brightness_contrast(
            images, brightness=given.brightnesses, contrast=given.contrasts, contrast_center=128
        )
        images = fn.crop_mirror_normalize(
            images,
            mirror=given.flips,
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
        )
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

    return define
