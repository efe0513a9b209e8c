"""What training sees of a mask is what cityscapesScripts writes as train ids, also where a tree has polygons only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from city_data import NASTY, TinyFrame, box, nasty_tree
from cityscapesscripts.preparation.json2labelImg import json2labelImg
from PIL import Image
from test_data_convert_trees import rows
from test_data_programs import prepare, summary

from training.segmentation.dataset import SegmentationSet, decode_mask
from training.segmentation.labels import TRAIN_IDS


def check_train_ids(data: SegmentationSet, polygons: Path, tmp_path: Path) -> None:
    """Compares every mask, mapped as training maps it, with the train ids that cityscapesScripts draws."""
    assert len(data)
    for index in range(len(data)):
        name = data.name(index).replace("_leftImg8bit.png", "_gtFine_polygons.json")
        json2labelImg(str(polygons / name), str(tmp_path / "train_ids.png"), "trainIds")
        expected = np.asarray(Image.open(tmp_path / "train_ids.png"))
        seen = TRAIN_IDS[decode_mask(data.mask(index).read_bytes(), data.mask(index))]
        assert np.array_equal(seen, expected)


@pytest.mark.parametrize("split", ["train", "val"])
def test_generated_frames_are_seen_with_the_train_ids_of_cityscapes(scenes: Path, tmp_path: Path, split: str) -> None:
    check_train_ids(SegmentationSet.open(scenes, split, 0, print), scenes / "gtFine", tmp_path)


def test_masks_drawn_from_polygons_are_those_of_cityscapes(tmp_path: Path) -> None:
    full, bare, out = tmp_path / "full", tmp_path / "bare", tmp_path / "out"
    frames = nasty_tree(full)
    nasty_tree(bare, kinds=["polygons"])
    TinyFrame(bare, "val", "jena", "one").write(NASTY["slanted"], ["polygons", "labelIds"])
    made = summary(prepare(bare, out))
    assert (made["images"], made["warnings"]) == (len(NASTY), [])
    for frame in frames:
        drawn = out / frame.truth("labelIds").relative_to(full)
        assert drawn.read_bytes() == frame.truth("labelIds").read_bytes()
    check_train_ids(SegmentationSet.open(out, "train", 0, print), bare / "gtFine", tmp_path)
    again = summary(prepare(bare, out))
    assert again["skipped"] and again["manifest_sha256"] == made["manifest_sha256"]


def test_masks_are_drawn_only_where_there_are_none(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    has_mask = TinyFrame(source, "train", "ulm", "has_mask").write([box("car", 0, 0, 9, 9)])
    Image.fromarray(np.full((48, 96), 7, np.uint8)).save(has_mask.truth("labelIds"))
    TinyFrame(source, "train", "ulm", "polygons").write([box("car", 0, 0, 9, 9)], ["polygons"])
    result = prepare(source, out)
    table = rows(result.stdout)
    assert (summary(result)["images"], table["from labelIds"][0], table["from polygons"][0]) == (2, [1, 0], [1, 0])
    masks = out / "gtFine" / "train" / "ulm"
    assert np.unique(np.asarray(Image.open(masks / "has_mask_gtFine_labelIds.png"))).tolist() == [7]
    assert np.unique(np.asarray(Image.open(masks / "polygons_gtFine_labelIds.png"))).tolist() == [0, 26]
