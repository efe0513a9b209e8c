"""The input pipeline in NVIDIA DALI: decode the crop, resize, colour, normalise, flip, encode boxes."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from nvidia.dali import fn, types
from torch import Tensor
from torchvision.ops import box_convert

from training.common.dali_loader import Graph
from training.common.dali_pixels import ALL_TO_JPEG_UNIT, coloured, normalised
from training.common.loader import Plan
from training.ssd.boxes import IMAGE_SIZE, MATCH_IOU, SCALE_WH, SCALE_XY, default_boxes
from training.ssd.pixels import backbone_inputs
from training.ssd.planner import Arguments

OUTPUTS = ["images", "offsets", "labels"]
# A GPU decodes JPEG faster than the host plans small batches of it; PNG keeps cores waiting for the slowest image of a run
_AT_ONCE = 64


def graph(device: torch.device, antialias: bool, jpeg: bool) -> Graph:
    """The graph for DaliLoader. On a GPU, JPEG is decoded there; DALI decodes PNG on the CPU wherever it is asked to.

    On the CPU DALI decodes and encodes boxes. The rest is torch's, which resizes in a tenth of DALI's time
    (`benchmarks/ssd_input.py`).
    """
    return _on_gpu(antialias, jpeg) if device.type == "cuda" else _on_cpu(antialias)


def _on_gpu(antialias: bool, jpeg: bool) -> Graph:
    def define(files: Sequence[Any], given: SimpleNamespace) -> tuple[Any, ...]:
        images = _crops(files[0], given, "mixed") if jpeg else _crops(files[0], given, "cpu").gpu()
        images = fn.resize(images, size=[IMAGE_SIZE, IMAGE_SIZE], antialias=antialias)
        images = normalised(coloured(images, given), given, True)
        return images, *_encoded(given.boxes.gpu(), given.labels.gpu())

    return Graph(define, 1, Arguments._fields, OUTPUTS, images_at_once=_AT_ONCE)


def _on_cpu(antialias: bool) -> Graph:
    def define(files: Sequence[Any], given: SimpleNamespace) -> tuple[Any, ...]:
        return _crops(files[0], given, "cpu"), *_encoded(given.boxes, given.labels)

    def finish(samples: Sequence[list[Tensor]], plan: Plan) -> tuple[Tensor, ...]:
        crops, offsets, labels = samples
        images = [crop.permute(2, 0, 1) for crop in crops]
        return backbone_inputs(images, plan.arguments, antialias), torch.stack(offsets), torch.stack(labels)

    return Graph(define, 1, ("anchors", "shapes", "boxes", "labels"), OUTPUTS, finish)


def _crops(files: Any, given: SimpleNamespace, device: str) -> Any:
    return fn.decoders.image_slice(
        files,
        given.anchors,
        given.shapes,
        device=device,
        hw_decoder_load=ALL_TO_JPEG_UNIT,
        output_type=types.RGB,
    )


def _encoded(boxes: Any, labels: Any) -> tuple[Any, Any]:
    """Where `boxes` and `labels` are: 0.8 ms of a core's time for an image, so on a GPU if there is one."""
    return fn.box_encoder(
        boxes,
        labels,
        anchors=box_convert(default_boxes(), "cxcywh", "xyxy").flatten().tolist(),
        criteria=MATCH_IOU,
        offset=True,
        scale=1.0,
        stds=[SCALE_XY, SCALE_XY, SCALE_WH, SCALE_WH],
    )
