"""Reads a frame's instance ids (Cityscapes: label id * 1000 + instance; a bare label id is a group or has none)."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
from cityscapesscripts.helpers.annotation import Annotation, CsPoly
from cityscapesscripts.helpers.labels import id2label, name2label
from cityscapesscripts.preparation.json2instanceImg import createInstanceImage
from cityscapesscripts.preparation.json2labelImg import createLabelImage
from numpy.typing import NDArray
from PIL import Image

from training.data.conversion.flat_png import read_flat_png
from training.data.errors import DataError
from training.data.png import check_png

PER_LABEL = 1000

_FAR = 1 << 24  # px: Pillow draws with 32-bit integers


def label_of(value: int) -> int:
    """The label id of an instance id."""
    return value // PER_LABEL if value >= PER_LABEL else value


def read_instance_ids(path: Path) -> NDArray[np.integer]:
    """The id image (height, width) of `*_instanceIds.png`, or drawn from `*_polygons.json`.

    Integers of 16 or 32 bits, in any byte order. Raises DataError for what the file holds, OSError.
    """
    if path.suffix.lower() == ".json":
        return np.asarray(createInstanceImage(read_polygons(path), "ids"))
    ids = read_flat_png(path)
    return _any_png(path) if ids is None or ids.itemsize != 2 else ids


def draw_label_ids(path: Path) -> Image.Image:
    """The label image, 8 bits, drawn from `*_polygons.json` as cityscapesScripts does. Raises DataError, OSError."""
    return createLabelImage(read_polygons(path), "ids")


def check_labels(values: list[int], path: Path) -> None:
    """Raises DataError for an instance id whose label Cityscapes does not have."""
    for value in values:
        if label_of(value) not in id2label:
            raise DataError(
                f"{path}: unknown label id {label_of(value)} (pixel value {value}); Cityscapes has 0 to 33, "
                f"and instances are label id * {PER_LABEL} + number"
            )


def read_polygons(path: Path) -> Annotation:
    """The objects of `*_polygons.json`, that cityscapesScripts can draw. Raises DataError, OSError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        drawn = [entry for entry in document["objects"] if not entry.get("deleted")]
        width, height = document["imgWidth"], document["imgHeight"]
        if not all(type(side) is int and side > 0 for side in (width, height)):
            raise ValueError(f"a size of {width}x{height} px")
        annotation = Annotation()
        annotation.fromJsonText(json.dumps({"imgHeight": height, "imgWidth": width, "objects": drawn}))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DataError(
            f"{path}: not the polygons of a frame ({error!r}); "
            "expected imgHeight, imgWidth and objects with label and polygon"
        ) from error
    for entry in annotation.objects:
        _check_object(entry, path)
    return annotation


def _check_object(entry: CsPoly, path: Path) -> None:
    """cityscapesScripts ends the program at what it cannot draw."""
    if entry.label not in name2label and entry.label.removesuffix("group") not in name2label:
        raise DataError(
            f"{path}: unknown label {entry.label!r}; the labels are those of cityscapesscripts.helpers.labels"
        )
    numbers = [number for corner in entry.polygon for number in corner]
    if len(entry.polygon) < 2 or not all(type(number) in (int, float) and abs(number) < _FAR for number in numbers):
        raise DataError(f"{path}: not the polygons of a frame: one of {entry.label} is no list of corners in pixels")


def _any_png(path: Path) -> NDArray[np.int32]:
    content = path.read_bytes()
    check_png(content, path, "ground truth")  # Pillow passes over the CRCs of pixels
    try:
        with Image.open(io.BytesIO(content)) as image:
            if not image.mode.startswith("I"):
                raise DataError(f"{path}: a picture of mode {image.mode}; instance ids are one channel of 16 bits")
            return np.asarray(image).astype(np.int32)
    except (OSError, SyntaxError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f"{path}: not a readable PNG ({error}); copy it again, or remove it") from error
