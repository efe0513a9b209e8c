"""Reads a frame's instance ids (Cityscapes: label id * 1000 + instance; a bare label id is a group or has none)."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from cityscapesscripts.helpers.annotation import Annotation
from cityscapesscripts.helpers.labels import id2label, name2label
from cityscapesscripts.preparation.json2instanceImg import createInstanceImage
from numpy.typing import NDArray
from PIL import Image

from training.data.errors import DataError

PER_LABEL = 1000


def label_of(value: int) -> int:
    """The label id of an instance id."""
    return value // PER_LABEL if value >= PER_LABEL else value


def read_instance_ids(path: Path) -> NDArray[np.int32]:
    """The id image (height, width) of `*_instanceIds.png`, or drawn from `*_polygons.json`. Raises DataError."""
    return _from_polygons(path) if path.suffix.lower() == ".json" else _from_png(path)


def check_labels(values: list[int], path: Path) -> None:
    """Raises DataError for an instance id whose label Cityscapes does not have."""
    for value in values:
        if label_of(value) not in id2label:
            raise DataError(
                f"{path}: unknown label id {label_of(value)} (pixel value {value}); Cityscapes has 0 to 33, "
                f"and instances are label id * {PER_LABEL} + number"
            )


def _from_png(path: Path) -> NDArray[np.int32]:
    try:
        with Image.open(path) as image:
            if not image.mode.startswith("I"):
                raise DataError(f"{path}: a picture of mode {image.mode}; instance ids are one channel of 16 bits")
            return np.asarray(image).astype(np.int32)
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{path}: not a readable PNG ({error}); copy it again, or remove it") from error


def _from_polygons(path: Path) -> NDArray[np.int32]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        for entry in document["objects"]:
            _check_object(entry, path)
        annotation = Annotation()
        annotation.fromJsonText(json.dumps(document))
        return np.asarray(createInstanceImage(annotation, "ids"))
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise DataError(
            f"{path}: not the polygons of a frame ({error!r}); "
            "expected imgHeight, imgWidth and objects with label and polygon"
        ) from error


def _check_object(entry: dict[str, object], path: Path) -> None:
    """cityscapesScripts ends the program at a label that it does not know."""
    label = str(entry["label"])
    if label not in name2label and label.removesuffix("group") not in name2label:
        raise DataError(f"{path}: unknown label {label!r}; the labels are those of cityscapesscripts.helpers.labels")
