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
from training.common.dali_pixels import coloured, normalised
from training.common.loader import Plan
from training.ssd.boxes import IMAGE_SIZE, MATCH_IOU, SCALE_WH, SCALE_XY, default_boxes
from training.ssd.pixels import backbone_inputs
from training.ssd.planner import Arguments

OUTPUTS = ["images", "offsets", "labels"]


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
        offsets, labels = _encoded(given)
        return images, offsets.gpu(), labels.gpu()

    return Graph(define, 1, Arguments._fields, OUTPUTS)


def _on_cpu(antialias: bool) -> Graph:
    def define(files: Sequence[Any], given: SimpleNamespace) -> tuple[Any, ...]:
        return _crops(files[0], given, "cpu"), *_encoded(given)

    def finish(samples: Sequence[list[Tensor]], plan: Plan) -> tuple[Tensor, ...]:
        crops, offsets, labels = samples
        images = [crop.permute(2, 0, 1) for crop in crops]
        return backbone_inputs(images, plan.arguments, antialias), torch.stack(offsets), torch.stack(labels)

    return Graph(define, 1, ("anchors", "shapes", "boxes", "labels"), OUTPUTS, finish)


def _crops(files: Any, given: SimpleNamespace, device: str) -> Any:
    return fn.decoders.image_slice(files, given.anchors, given.shapes, device=device, output_type=types.RGB)


def _encoded(given: SimpleNamespace) -> tuple[Any, Any]:
    return fn.box_encoder(
        given.boxes,
        given.labels,
        anchors=box_convert(default_boxes(), "cxcywh", "xyxy").flatten().tolist(),
        criteria=MATCH_IOU,
        offset=True,
        scale=1.0,
        stds=[SCALE_XY, SCALE_XY, SCALE_WH, SCALE_WH],
    )
