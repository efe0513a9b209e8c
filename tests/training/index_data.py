"""A COCO annotation file of a few lines, and what must be read of one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from training.data.indexing.index_build import Index


def document() -> dict[str, Any]:
    return {
        "images": [
            {"id": 7, "file_name": "a/7.png", "width": 100, "height": 50},
            {"id": 3, "file_name": "a/3.png", "width": 100, "height": 50},
            {"id": 9, "file_name": "b/9.png", "width": 100, "height": 50},
        ],
        "annotations": [
            {"id": 1, "image_id": 3, "category_id": 5, "bbox": [10, 10, 20, 20], "iscrowd": 0},
            {"id": 2, "image_id": 7, "category_id": 2, "bbox": [10, 20, 30, 10]},
            {"id": 3, "image_id": 3, "category_id": 2, "bbox": [90, 40, 30, 30], "iscrowd": 0},
            {"id": 4, "image_id": 9, "category_id": 2, "bbox": [90, 40, 30, 30], "iscrowd": 1},
        ],
        "categories": [{"id": 5, "name": "car"}, {"id": 2, "name": "person"}],
    }


def write(path: Path, content: dict[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


class Said(list[str]):
    """What was told the user."""

    def __call__(self, line: str) -> None:
        self.append(line)

    def has(self, text: str) -> bool:
        return any(text in line for line in self)


def as_lists(index: Index) -> dict[str, Any]:
    images = range(len(index.image_ids))
    spans = [slice(index.box_offsets[i], index.box_offsets[i + 1]) for i in images]
    return {
        "classes": index.classes,
        "category_ids": index.category_ids,
        "image_ids": index.image_ids.tolist(),
        "names": [index.name(i) for i in images],
        "without_box": [index.name(len(images) + i) for i in range(index.images_without_box)],
        "boxes": [index.boxes[span].tolist() for span in spans],
        "labels": [index.labels[span].tolist() for span in spans],
    }


def plain(text: str) -> dict[str, Any]:
    """The same, from a plain reading of all at once."""
    content = json.loads(text)
    category_ids = [record["id"] for record in content["categories"]]
    sizes = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
    boxes: dict[int, list[list[float]]] = {number: [] for number in sizes}
    labels: dict[int, list[int]] = {number: [] for number in sizes}
    for record in content["annotations"]:
        left, top, width, height = record["bbox"]
        if record.get("iscrowd") or min(width, height) < 0.1:
            continue
        wide, high = sizes[record["image_id"]]
        corners = [left / wide, top / high, (left + width) / wide, (top + height) / high]
        box = [float(np.float32(min(1, max(0, side)))) for side in corners]
        if box[2] > box[0] and box[3] > box[1]:
            boxes[record["image_id"]].append(box)
            labels[record["image_id"]].append(category_ids.index(record["category_id"]) + 1)
    names = {image["id"]: image["file_name"] for image in content["images"]}
    used = [number for number in sizes if boxes[number]]
    return {
        "classes": [record["name"] for record in content["categories"]],
        "category_ids": category_ids,
        "image_ids": used,
        "names": [names[number] for number in used],
        "without_box": [names[number] for number in sizes if not boxes[number]],
        "boxes": [boxes[number] for number in used],
        "labels": [labels[number] for number in used],
    }
