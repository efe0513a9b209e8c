"""A small data set in the form that the SSD program reads, for its tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

WIDTH, HEIGHT = 256, 128
CATEGORIES = [(33, "bicycle"), (24, "person"), (31, "train"), (26, "car")]
# per image: (category id, x, y, width, height) in pixels; one box ends a little outside its image
BOXES = [
    [(24, 20, 10, 60, 80), (26, 120, 30, 100, 60)],
    [(33, 10, 20, 90, 90)],
    [(26, 0, 0, 200, 100), (31, 30, 60, 40, 40)],
    [(24, 150, 20, 106.0001, 100)],
    [(31, 40, 4, 120, 120)],
]
FIRST_ID = 501


def write_dataset(root: Path, images: int = len(BOXES)) -> Path:
    """Noise PNGs: `images` (at most five) with boxes, then one with only a crowd and a speck, and one without any."""
    city = root / "train2017" / "ulm"
    city.mkdir(parents=True)
    (root / "annotations").mkdir()
    random = np.random.default_rng(0)
    records: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []

    def annotate(image: int, category: int, box: list[float], crowd: int = 0) -> None:
        keys = {"id": len(annotations), "image_id": image, "category_id": category, "bbox": box, "iscrowd": crowd}
        annotations.append(keys | {"area": box[2] * box[3]})

    for index in range(images + 2):
        pixels = random.integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        name = f"ulm/ulm_{index:06d}.png"
        Image.fromarray(pixels).save(root / "train2017" / name)
        records.append({"id": FIRST_ID + index, "file_name": name, "width": WIDTH, "height": HEIGHT})
        for category, *box in BOXES[index] if index < images else []:
            annotate(FIRST_ID + index, category, box)
    annotate(FIRST_ID + images, 26, [5, 5, 90, 90], crowd=1)
    annotate(FIRST_ID + images, 26, [5, 5, 0.05, 90])
    categories = [{"id": number, "name": name} for number, name in CATEGORIES]
    document = {"images": records, "annotations": annotations, "categories": categories}
    (root / "annotations" / "instances_train2017.json").write_text(json.dumps(document), encoding="utf-8")
    return root
