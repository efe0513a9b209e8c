"""Hand-made frames of every nasty kind, as each reader of COCO sees them after conversion."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from city_data import CATEGORIES, NASTY, TinyFrame, nasty_tree, objects_one_by_one
from nvidia.dali import fn, pipeline_def
from pycocotools import mask
from pycocotools.coco import COCO
from test_data_programs import convert, tree
from torchvision.datasets import CocoDetection

pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation:DeprecationWarning"
)  # pycocotools 2.0.11, numpy 2
ANNOTATIONS = "annotations/instances_train2017.json"


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TinyFrame]:
    """The frames of NASTY by the names of their pictures below the split."""
    root = tmp_path_factory.mktemp("nasty") / "cityscapes"
    return {f"{frame.city}/{frame.image.name}": frame for frame in nasty_tree(root)}


@pytest.fixture(scope="module")
def converted(nasty: dict[str, TinyFrame], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The data set that each kind of --segmentation makes."""
    root, out = next(iter(nasty.values())).root, tmp_path_factory.mktemp("nasty-coco")
    for kind in ("rle", "polygons", "none"):
        convert(root, out / kind, "--segmentation", kind)
    return {path.name: path for path in out.iterdir()}


def document(out: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((out / ANNOTATIONS).read_text())
    return loaded


@pytest.mark.parametrize("kind", ["rle", "polygons", "none"])
def test_data_nasty_objects_equal_the_plain_conversion(
    nasty: dict[str, TinyFrame], converted: dict[str, Path], kind: str
) -> None:
    coco = COCO(str(converted[kind] / ANNOTATIONS))
    assert sorted(image["file_name"] for image in coco.imgs.values()) == sorted(nasty)
    for image in coco.imgs.values():
        held = coco.imgToAnns[image["id"]]
        expected = list(objects_one_by_one(nasty[image["file_name"]].truth("instanceIds")))
        for annotation, (category, iscrowd, box, area, _, counts) in zip(held, expected, strict=True):
            assert (annotation["category_id"], annotation["iscrowd"]) == (category, iscrowd)
            assert (annotation["bbox"], annotation["area"]) == (box, area)
            if kind == "none":
                assert "segmentation" not in annotation
            else:
                assert isinstance(annotation["segmentation"], dict if iscrowd or kind == "rle" else list)
                assert coco.annToRLE(annotation)["counts"] in (counts, counts.encode())


def test_data_nasty_frames_are_what_they_are_meant_to_be(converted: dict[str, Path]) -> None:
    coco = COCO(str(converted["rle"] / ANNOTATIONS))
    held = {
        Path(image["file_name"]).name.partition("_leftImg8bit")[0]: coco.imgToAnns[image["id"]]
        for image in coco.imgs.values()
    }
    assert held.keys() == NASTY.keys()
    assert held["nothing"] == [] and len(held["a_crowd_of_300"]) == 300
    assert [annotation["category_id"] for annotation in held["ignored"]] == [26]
    assert [annotation["category_id"] for annotation in held["covered"]] == [24]
    assert [annotation["iscrowd"] for annotation in held["groups"]] == [1, 1, 0]
    assert [annotation["bbox"] for annotation in held["whole_frame"]] == [[0, 0, 96, 48]]
    assert sorted(annotation["area"] for annotation in held["single_pixels"]) == [1, 1, 1]


def test_data_crowds_are_evaluated_as_crowds(converted: dict[str, Path]) -> None:
    """pycocotools compares with a crowd by the part of the detection that is inside, for which it needs its RLE."""
    for kind in ("rle", "polygons"):
        coco = COCO(str(converted[kind] / ANNOTATIONS))
        cars = [one for one in coco.anns.values() if one["iscrowd"] and one["category_id"] == 26]
        crowd = max(cars, key=lambda annotation: annotation["area"])
        detected = mask.frPyObjects([[41, 2, 44, 2, 44, 9, 41, 9]], *crowd["segmentation"]["size"])
        assert mask.iou(detected, [coco.annToRLE(crowd)], [1]).tolist() == [[1.0]]


@pytest.mark.parametrize("kind", ["rle", "polygons", "none"])
def test_data_torchvision_reads_it(converted: dict[str, Path], kind: str) -> None:
    data = CocoDetection(converted[kind] / "train2017", converted[kind] / ANNOTATIONS)
    seen = {}
    for index, (picture, objects) in enumerate(data):
        seen[data.ids[index]] = objects
        assert picture.size == (96, 48)
    assert seen == {image["id"]: [a for a in document(converted[kind])["annotations"] if a["image_id"] == image["id"]]
                    for image in document(converted[kind])["images"]}  # fmt: skip


@pytest.mark.parametrize("kind", ["rle", "polygons", "none"])
def test_data_dali_reads_it(converted: dict[str, Path], kind: str) -> None:
    out = converted[kind]
    coco = COCO(str(out / ANNOTATIONS))
    masks = kind == "polygons"  # DALI 2.4 draws only the last RLE of a class in an image

    @pipeline_def(batch_size=1, num_threads=1, device_id=None)
    def reader() -> tuple[Any, ...]:
        return tuple(
            fn.readers.coco(
                file_root=str(out / "train2017"),
                annotations_file=str(out / ANNOTATIONS),
                image_ids=True,
                ltrb=True,
                skip_empty=False,
                include_iscrowd=False,
                pixelwise_masks=masks,
            )
        )

    pipeline = reader()
    pipeline.build()
    seen = set()
    for _ in coco.imgs:
        _, boxes, labels, *drawn, number = (np.array(part[0]) for part in pipeline.run())
        seen.add(number.item())
        held = [annotation for annotation in coco.imgToAnns[number.item()] if not annotation["iscrowd"]]
        x, y, width, height = np.array([annotation["bbox"] for annotation in held]).reshape(-1, 4).T
        assert np.array_equal(boxes, np.stack([x, y, x + width, y + height], axis=1))
        assert [CATEGORIES[label - 1] for label in labels.ravel()] == [annotation["category_id"] for annotation in held]
        expected = np.zeros((48, 96), int)
        for annotation in held if masks else []:
            expected[coco.annToMask(annotation) > 0] = CATEGORIES.index(annotation["category_id"]) + 1
        assert all(np.array_equal(mask_of_classes[..., 0], expected) for mask_of_classes in drawn)
    assert seen == coco.imgs.keys()


@pytest.mark.parametrize("kinds", [["polygons"], ["instanceIds"], ["labelIds", "instanceIds"]])
def test_data_each_kind_of_truth_gives_the_same(converted: dict[str, Path], tmp_path: Path, kinds: list[str]) -> None:
    nasty_tree(tmp_path / "source", kinds=kinds)
    asked = "polygons" if "polygons" in kinds else "instances"
    for options in (["--truth", asked], []):
        convert(tmp_path / "source", tmp_path / "out", *options)
        assert {**tree(tmp_path / "out"), "manifest.json": ""} == {**tree(converted["rle"]), "manifest.json": ""}


def test_data_both_kinds_of_truth_can_be_asked_for(
    nasty: dict[str, TinyFrame], converted: dict[str, Path], tmp_path: Path
) -> None:
    root = next(iter(nasty.values())).root
    for truth in ("instances", "polygons"):
        convert(root, tmp_path / truth, "--truth", truth)
        assert {**tree(tmp_path / truth), "manifest.json": ""} == {**tree(converted["rle"]), "manifest.json": ""}


def test_data_ids_do_not_depend_on_the_order_of_files(converted: dict[str, Path], tmp_path: Path) -> None:
    for name, objects in sorted(NASTY.items(), reverse=True):
        city = ("ulm", "bonn")[list(NASTY).index(name) % 2]
        TinyFrame(tmp_path / "source", "train", city, name).write(objects, ("instanceIds", "polygons"))
    convert(tmp_path / "source", tmp_path / "out")
    assert {**tree(tmp_path / "out"), "manifest.json": ""} == {**tree(converted["rle"]), "manifest.json": ""}
