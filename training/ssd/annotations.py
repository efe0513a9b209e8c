"""What training needs from a COCO annotation file beside what DALI reads from it itself: classes, images, names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.common.errors import UserError

_SMALLEST_SIDE_PIXELS = 0.1  # DALI's readers.coco drops smaller boxes (size_threshold)


@dataclass(frozen=True)
class Annotations:
    """`classes` in the file's order: class k (from 1; 0 is background) is the k-th category of the file, as in DALI.

    `file_names` maps the id of every image that has a box to its path below the image folder; `without_box` are the
    paths of the images that have none and are not trained on.
    """

    classes: list[str]
    file_names: dict[int, str]
    without_box: list[str]


def read_annotations(path: Path) -> Annotations:
    """Reads `instances_train2017.json`. Crowd boxes do not count as boxes. Raises UserError.

    An enlarged data set has 17 million boxes in 3 GB of text, so each is dropped while parsing but for its image.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"), object_hook=_image_of_box)
        classes = [str(category["name"]) for category in document["categories"]]
        boxed = set(document["annotations"])
        images = document["images"]
        file_names = {int(image["id"]): str(image["file_name"]) for image in images if image["id"] in boxed}
        without_box = [str(image["file_name"]) for image in images if image["id"] not in boxed]
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; --data must name the folder above it") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    except (KeyError, TypeError) as error:
        raise UserError(f"{path} is not a COCO annotation file: {error!r}") from error
    if not classes:
        raise UserError(f"{path} names no categories")
    if not file_names:
        raise UserError(f"{path} lists {len(images)} images and none of them has a box: there is nothing to train on")
    return Annotations(classes, file_names, without_box)


def _image_of_box(record: dict[str, Any]) -> Any:
    """An annotation's image id, None if its box is not trained on; any other object as it is."""
    if "bbox" not in record:
        return record
    _, _, width, height = record["bbox"]
    usable = min(width, height) >= _SMALLEST_SIDE_PIXELS and not record.get("iscrowd", 0)
    return record["image_id"] if usable else None
