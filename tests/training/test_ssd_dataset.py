"""The data set's folder as the SSD program reads it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from ssd_data import BOXES, CATEGORIES, FIRST_ID, HEIGHT, WIDTH, write_dataset

from training.common.errors import UserError
from training.common.gang import Gang
from training.data.manifest import Generator, Manifest, SplitManifest, manifest_sha256, write_manifest
from training.ssd.annotations import Annotations, open_annotations
from training.ssd.dataset import Layout, steps_per_pass, total_image_bytes

ALONE = Gang(0, 0, 1, 0, torch.device("cpu"), None)


@pytest.fixture
def layout(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEOUT_CACHE_DIR", str(tmp_path / "cache"))
    return Layout(write_dataset(tmp_path / "data"))


def opened(layout: Layout) -> Annotations:
    return open_annotations(layout.annotations, print)


def test_classes_keep_the_files_order_and_images_without_a_box_are_left_out(layout):
    found = opened(layout)
    assert found.classes == ["bicycle", "person", "train", "car"]
    assert found.category_ids == [33, 24, 31, 26]
    assert len(found) == 5 and found.image_ids.tolist() == list(range(FIRST_ID, FIRST_ID + 5))
    assert [found.name(i) for i in range(5)] == [f"ulm/ulm_{i:06d}.png" for i in range(5)]
    assert found.images_without_box == 2
    assert found.names_without_box() == ["ulm/ulm_000005.png", "ulm/ulm_000006.png"]


def test_boxes_are_clipped_fractions_and_labels_count_the_files_categories_from_one(layout):
    found = opened(layout)
    place = {number: k for k, (number, _) in enumerate(CATEGORIES, start=1)}
    for index, expected in enumerate(BOXES):
        boxes, labels = found.boxes(index), found.labels(index)
        assert (boxes.dtype, labels.dtype) == (np.float32, np.int32)
        ltrb = [
            [x / WIDTH, y / HEIGHT, min(1, (x + w) / WIDTH), min(1, (y + h) / HEIGHT)] for _, x, y, w, h in expected
        ]
        np.testing.assert_allclose(boxes, ltrb, rtol=1e-6)
        assert labels.tolist() == [place[box[0]] for box in expected]
        torch.from_numpy(boxes).mul_(2)  # the caller's own
    assert found.boxes(0).max() < 1


def test_sizes_are_looked_up_and_a_missing_image_is_named(layout):
    annotations = opened(layout)
    held = sum((layout.images / annotations.name(i)).stat().st_size for i in range(len(annotations)))
    assert total_image_bytes(layout, annotations, ALONE) == held
    (layout.images / "ulm/ulm_000003.png").unlink()
    with pytest.raises(UserError, match=r"ulm_000003\.png: No such file"):
        total_image_bytes(layout, annotations, ALONE)


def test_a_manifest_of_these_annotations_saves_the_lookups(layout):
    annotations = opened(layout)
    held = total_image_bytes(layout, annotations, ALONE)
    sizes = [path.stat().st_size for path in layout.images.glob("*/*.png")]
    split = SplitManifest(len(sizes), 9, sum(sizes), 0, WIDTH, HEIGHT)
    generator = Generator("made up", 1, {}, {})
    write_manifest(layout.root, Manifest(2, "ssd", generator, "", "", annotations.classes, {"train": split}, {}))
    assert len(manifest_sha256(layout.root)) == 64
    for index in range(len(annotations)):
        (layout.images / annotations.name(index)).unlink()
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
    assert manifest_sha256(layout.root) is None


def test_steps_of_a_pass():
    assert steps_per_pass(972_825, 8, 16) == 7_601  # the paper's set on one node
    assert steps_per_pass(5, 2, 2) == 2
    assert steps_per_pass(3, 2, 16) == 1
    with pytest.raises(UserError, match="3 training images cannot be shared by 4 ranks"):
        steps_per_pass(3, 4, 2)
