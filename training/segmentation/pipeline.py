"""The input pipeline in NVIDIA DALI: decode the window, resize, colour, map label ids, pad, flip, normalise."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, math, types
from torch import Tensor

from training.common.dali_loader import Graph
from training.common.dali_pixels import ALL_TO_JPEG_UNIT, black, coloured, normalised
from training.common.loader import Plan
from training.common.pixels import Colours, finished
from training.segmentation.augment import NEAREST_SHIFT, Augmentation, Functions, Window, window
from training.segmentation.labels import IGNORED, TRAIN_IDS

OUTPUTS = ["images", "targets"]

_NODES = Functions(math.floor, math.ceil, math.min, math.max)
_FAR = 1_000_000  # px: moves the window of a mask out of it, where its size is not the image's


def graph(device: torch.device, crop: tuple[int, int], antialias: bool, jpeg: bool) -> Graph:
    """The graph for DaliLoader, to images (B, 3, h, w) float32 and targets (B, h, w) uint8 train ids, 255 in the padding.

    On a GPU, JPEG is decoded there; DALI decodes PNG on the CPU wherever it is asked to. A label id that Cityscapes does
    not have becomes 255.
    """
    on_gpu = device.type == "cuda"

    def define(files: Sequence[Any], given: SimpleNamespace) -> tuple[Any, ...]:
        image_files, mask_files = files
        size, mask_size = _size(image_files), _size(mask_files)
        found = window(
            fn.cast(size, dtype=types.FLOAT64),
            types.Constant(np.array(crop, np.float64)),
            given.scales,
            given.points,
            given.reaches,
            given.places,
            _NODES,
        )
        corner, decoded = (fn.cast(value, dtype=types.INT32) for value in (found.corner, found.decoded))
        images = fn.decoders.image_slice(
            image_files,
            corner,
            decoded,
            axis_names="HW",
            normalized_anchor=False,
            normalized_shape=False,
            device="mixed" if on_gpu and jpeg else "cpu",
            hw_decoder_load=ALL_TO_JPEG_UNIT,
            output_type=types.RGB,
        )
        masks = fn.decoders.image_slice(
            mask_files,
            corner + fn.cast(mask_size - size, dtype=types.INT32) * _FAR,
            decoded,
            axis_names="HW",
            normalized_anchor=False,
            normalized_shape=False,
            output_type=types.ANY_DATA,
        )
        if on_gpu:
            images, masks = images if jpeg else images.gpu(), masks.gpu()
        images = fn.resize(images, antialias=antialias, **_resized(found))
        images = coloured(images, given) if on_gpu else images
        images = normalised(images, given, on_gpu, fill_values=black(on_gpu), **_padded(found, crop))
        return images, _targets(masks, found, given, crop)

    if on_gpu:
        return Graph(define, 2, Augmentation._fields, OUTPUTS)
    return Graph(define, 2, [name for name in Augmentation._fields if name not in Colours._fields], OUTPUTS, _finish)


def _finish(samples: Sequence[list[Tensor]], plan: Plan) -> tuple[Tensor, ...]:
    images, targets = samples
    return finished(images, plan.arguments.colours), torch.stack(targets)


def _targets(masks: Any, found: Window, given: SimpleNamespace, crop: tuple[int, int]) -> Any:
    masks = fn.resize(masks, interp_type=types.INTERP_NN, antialias=False, **_resized(found, NEAREST_SHIFT))
    masks = fn.lookup_table(
        masks, keys=list(range(len(TRAIN_IDS))), values=TRAIN_IDS.tolist(), default_value=IGNORED, dtype=types.UINT8
    )
    masks = fn.crop_mirror_normalize(
        masks,
        mirror=given.flips,
        dtype=types.UINT8,
        output_layout="CHW",
        mean=[0.0],
        std=[1.0],
        fill_values=[float(IGNORED)],
        **_padded(found, crop),
    )
    return fn.squeeze(masks, axes=[0])


def _size(files: Any) -> Any:
    """(2,) int64: height and width, from the file's header."""
    return fn.slice(fn.peek_image_shape(files), 0, 2, axes=[0], normalized_anchor=False, normalized_shape=False)


def _resized(found: Window, shift_px: float = 0.0) -> dict[str, Any]:
    start, end, size = (
        fn.cast(value, dtype=types.FLOAT) for value in (found.start + shift_px, found.end + shift_px, found.size)
    )
    return {"roi_start": start, "roi_end": end, "size": size}


def _padded(found: Window, crop: tuple[int, int]) -> dict[str, Any]:
    """DALI gives the place of a crop as a fraction of what it leaves over, which is negative where it pads."""
    room = math.max(types.Constant(np.array(crop, np.float64)) - found.size, 1.0)
    places = fn.cast(found.before / room, dtype=types.FLOAT)
    return {
        "crop": list(crop),
        "crop_pos_y": places[0],
        "crop_pos_x": places[1],
        "out_of_bounds_policy": "pad",
    }
