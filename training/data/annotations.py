"""Frames to COCO: the work on one frame, and the document of a split."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.data.categories import CATEGORIES
from training.data.cityscapes import Frame
from training.data.errors import DataError
from training.data.files import link_or_copy
from training.data.png import png_size
from training.data.rle import Region, regions
from training.data.truth import PER_LABEL, check_labels, label_of, read_instance_ids


@dataclass(frozen=True)
class Task:
    """A frame and where its picture goes."""

    frame: Frame
    target: Path


@dataclass(frozen=True)
class Converted:
    """A frame's part of the annotations. Sizes in px; `objects` are its instances and groups of the 8 categories."""

    file_name: str
    width: int
    height: int
    image_bytes: int
    objects: list[Region]


def convert_frame(task: Task) -> Converted:
    """Reads a frame's ground truth and puts its picture in place. Raises DataError."""
    frame = task.frame
    width, height = png_size(frame.image)
    ids = read_instance_ids(frame.truth)
    if ids.shape != (height, width):
        raise DataError(
            f"{frame.truth}: {ids.shape[1]}x{ids.shape[0]} px, but its frame {frame.image} is {width}x{height} px; "
            "both must have the same size"
        )
    found = regions(ids)
    check_labels([region.value for region in found], frame.truth)
    link_or_copy(frame.image, task.target)
    return Converted(
        file_name=frame.file_name,
        width=width,
        height=height,
        image_bytes=frame.image.stat().st_size,
        objects=[region for region in found if label_of(region.value) in CATEGORIES],
    )


def coco_document(split: str, frames: list[Converted]) -> dict[str, Any]:
    """The COCO instances document of a split (https://cocodataset.org/#format-data).

    Image ids count from 1 in the order of `frames`, annotation ids from 1 over the split. A category's id is its
    Cityscapes label id. A group (bare label id) has iscrowd 1. Every object with a visible pixel is in it.
    """
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for image_id, frame in enumerate(frames, start=1):
        images.append({"id": image_id, "file_name": frame.file_name, "width": frame.width, "height": frame.height})
        for region in frame.objects:
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": image_id,
                    "category_id": label_of(region.value),
                    "bbox": region.bbox,
                    "area": region.area,
                    "iscrowd": int(region.value < PER_LABEL),
                    "segmentation": {"size": [frame.height, frame.width], "counts": region.counts},
                }
            )
    categories = [{"id": label, "name": name, "supercategory": group} for label, (name, group) in CATEGORIES.items()]
    info = {"description": f"Cityscapes gtFine, {split}, instances of {len(CATEGORIES)} classes"}
    return {"info": info, "licenses": [], "images": images, "annotations": annotations, "categories": categories}
