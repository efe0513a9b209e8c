"""The data set's folder as the SSD program reads it; `write_dataset` also serves the other tests of SSD."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from training.common.errors import UserError
from training.common.gang import Gang
from training.data.manifest import Manifest, SplitManifest
from training.ssd.annotations import read_annotations
from training.ssd.dataset import Layout, steps_per_pass, total_image_bytes
from training.wire.schema import write_json

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
ALONE = Gang(0, 0, 1, 0, torch.device("cpu"), None)


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


@pytest.fixture
def layout(tmp_path):
    return Layout(write_dataset(tmp_path / "data"))


def test_classes_keep_the_files_order_and_images_without_a_box_are_left_out(layout):
    found = read_annotations(layout.annotations)
    assert found.classes == ["bicycle", "person", "train", "car"]
    assert found.file_names == {FIRST_ID + i: f"ulm/ulm_{i:06d}.png" for i in range(5)}
    assert found.without_box == ["ulm/ulm_000005.png", "ulm/ulm_000006.png"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", "not a COCO annotation file"),
        ('{"images": [], "annotations": []}', "not a COCO annotation file: KeyError"),
        (
            '{"images": [{"id": 1, "file_name": "a"}], "annotations": [], "categories": [{"name": "car"}]}',
            "none of them has a box",
        ),
        ('{"images": [], "annotations": [], "categories": []}', "names no categories"),
    ],
)
def test_a_broken_annotation_file_is_refused(tmp_path, text, sentence):
    path = tmp_path / "instances.json"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        read_annotations(path)


def test_sizes_are_looked_up_and_a_missing_image_is_named(layout):
    annotations = read_annotations(layout.annotations)
    held = sum((layout.images / name).stat().st_size for name in annotations.file_names.values())
    assert total_image_bytes(layout, annotations, ALONE) == held
    (layout.images / "ulm/ulm_000003.png").unlink()
    with pytest.raises(UserError, match=r"ulm_000003\.png: No such file"):
        total_image_bytes(layout, annotations, ALONE)


def test_a_manifest_of_these_annotations_saves_the_lookups(layout):
    annotations = read_annotations(layout.annotations)
    held = total_image_bytes(layout, annotations, ALONE)
    sizes = [path.stat().st_size for path in layout.images.glob("*/*.png")]
    split = SplitManifest(len(sizes), 9, sum(sizes), 0, WIDTH, HEIGHT)
    write_json(layout.manifest, Manifest(1, "ssd", 1, "made up", "", annotations.classes, {"train": split}, {}))
    assert len(layout.manifest_sha256()) == 64
    for name in annotations.file_names.values():
        (layout.images / name).unlink()
    assert total_image_bytes(layout, annotations, ALONE) == held


def test_every_part_of_the_layout_is_asked_for(tmp_path):
    layout = Layout(tmp_path / "data")
    with pytest.raises(UserError, match="there is no folder"):
        layout.check()
    layout.root.mkdir()
    with pytest.raises(UserError, match=r"has no annotations/instances_train2017\.json"):
        layout.check()
    layout.annotations.parent.mkdir()
    layout.annotations.write_text("{}")
    with pytest.raises(UserError, match="has no train2017 folder"):
        layout.check()
    layout.images.mkdir()
    layout.check()
    assert layout.manifest_sha256() is None


def test_steps_of_a_pass():
    assert steps_per_pass(972_825, 8, 16) == 7_601  # the paper's set on one node
    assert steps_per_pass(5, 2, 2) == 2
    assert steps_per_pass(3, 2, 16) == 1
    with pytest.raises(UserError, match="3 training images cannot be shared by 4 ranks"):
        steps_per_pass(3, 4, 2)
