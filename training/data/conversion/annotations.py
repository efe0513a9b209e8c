"""Frames to COCO: the work on one frame."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from training.data.conversion.categories import CATEGORIES
from training.data.conversion.cityscapes import Frame
from training.data.conversion.contours import polygons
from training.data.conversion.left_out import BAD_IMAGE, BAD_TRUTH, OTHER_LABELS, OTHER_SIZE, Unusable
from training.data.conversion.rle import compressed, id_runs, regions
from training.data.conversion.truth import PER_LABEL, check_labels, label_of, read_instance_ids
from training.data.errors import DataError
from training.data.files import link_or_copy
from training.data.png import check_kind, check_png
from training.data.shards import StoredFile, content_digest

RLE, POLYGONS, NONE = SEGMENTATIONS = ("rle", "polygons", "none")


@dataclass(frozen=True)
class Task:
    """A frame, where its picture goes, and how its objects are told: one of SEGMENTATIONS."""

    frame: Frame
    target: Path
    segmentation: str


@dataclass(frozen=True)
class Converted:
    """A frame's part of the annotations. Sizes in px.

    `objects` are the instances and groups of the 8 categories, each a COCO annotation in JSON without its first members
    `{"id":…,"image_id":…,`; `trained` of them are instances.
    """

    file_name: str
    width: int
    height: int
    stored: StoredFile
    objects: list[str]
    trained: int


def convert_frame(task: Task) -> Converted | Unusable:
    """Reads a frame's ground truth and puts its picture in place. Raises OSError."""
    frame = task.frame
    reason = BAD_IMAGE
    try:
        picture = frame.image.read_bytes()
        header = check_png(picture, frame.image)
        check_kind(header, frame.image)
        width, height = header.width, header.height
        reason = BAD_TRUTH
        ids = read_instance_ids(frame.truth)
        reason = OTHER_SIZE
        frame.check_truth_size(ids.shape, width, height)
        reason = OTHER_LABELS
        objects = annotated(ids, task.segmentation, frame.truth)
    except DataError as error:
        return Unusable(reason, str(error))
    except (PermissionError, IsADirectoryError) as error:
        return Unusable(reason, f"{error.filename}: {error.strerror}")
    link_or_copy(frame.image, task.target)
    return Converted(
        file_name=frame.file_name,
        width=width,
        height=height,
        stored=StoredFile(len(picture), content_digest(picture)),
        objects=[_tail(annotation) for annotation in objects],
        trained=sum(not annotation["iscrowd"] for annotation in objects),
    )


def annotated(ids: NDArray[np.integer], segmentation: str, where: Path) -> list[dict[str, Any]]:
    """The annotations (https://cocodataset.org/#format-data), without their ids, of an image of instance ids (height, width).

    A category's id is its Cityscapes label id. A group (bare label id) has iscrowd 1 and always RLE, as COCO wants
    it. Every object with a visible pixel is there. Raises DataError, which names `where`, for a label that is none.
    """
    runs = id_runs(ids)
    check_labels(runs.values, where)
    kept = [number for number, value in enumerate(runs.values) if label_of(value) in CATEGORIES]
    found = regions(runs)
    annotations = [
        {
            "category_id": label_of(runs.values[number]),
            "bbox": found[number].bbox,
            "area": found[number].area,
            "iscrowd": int(runs.values[number] < PER_LABEL),
        }
        for number in kept
    ]
    if segmentation != NONE:
        as_rle = [number for number in kept if segmentation == RLE or runs.values[number] < PER_LABEL]
        counts = dict(zip(as_rle, compressed(runs, as_rle), strict=True))
        size = [runs.height, runs.width]
        for number, annotation in zip(kept, annotations, strict=True):
            rle = number in counts
            annotation["segmentation"] = {"size": size, "counts": counts[number]} if rle else polygons(runs, number)
    return annotations


def _tail(annotation: dict[str, Any]) -> str:
    return msgspec.json.encode(annotation).decode("ascii")[1:]
