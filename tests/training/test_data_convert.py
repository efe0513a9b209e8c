"""The converter: pixel-exact objects, the same from every kind of ground truth, and never half a data set."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from city_data import CATEGORIES, objects_one_by_one
from PIL import Image
from pycocotools.coco import COCO
from test_data_programs import CONVERT, convert, interrupted, summary, tree


@pytest.fixture(scope="session")
def coco(scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("coco") / "ssd"
    convert(scenes, out)
    return out


@pytest.fixture
def source(scenes: Path, tmp_path: Path) -> Path:
    """A copy of the scenes to change."""
    return Path(shutil.copytree(scenes, tmp_path / "source"))


def annotations(out: Path, split: str = "train") -> dict[str, Any]:
    document: dict[str, Any] = json.loads((out / "annotations" / f"instances_{split}2017.json").read_text())
    return document


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # pycocotools 2.0.11, numpy 2
@pytest.mark.parametrize("split", ["train", "val"])
def test_data_objects_equal_the_plain_conversion_pixel_for_pixel(scenes: Path, coco: Path, split: str) -> None:
    loaded = COCO(str(coco / "annotations" / f"instances_{split}2017.json"))
    assert loaded.imgs
    for image in loaded.imgs.values():
        truth = image["file_name"].replace("leftImg8bit", "gtFine_instanceIds")
        expected = list(objects_one_by_one(scenes / "gtFine" / split / truth))
        held = loaded.imgToAnns[image["id"]]
        assert len(held) == len(expected) > 0
        for annotation, (category, iscrowd, box, area, pixels, counts) in zip(held, expected, strict=True):
            assert (annotation["category_id"], annotation["iscrowd"]) == (category, iscrowd)
            assert (annotation["bbox"], annotation["area"]) == (box, area)
            assert np.array_equal(loaded.annToMask(annotation), pixels)
            assert annotation["segmentation"]["counts"] == counts


def test_data_documents_are_stable_and_complete(coco: Path) -> None:
    crowds = 0
    for split in ("train", "val"):
        document = annotations(coco, split)
        assert [category["id"] for category in document["categories"]] == CATEGORIES
        names = [image["file_name"] for image in document["images"]]
        assert names == sorted(names) and all(name.count("/") == 1 for name in names)
        assert [image["id"] for image in document["images"]] == list(range(1, len(names) + 1))
        held = document["annotations"]
        assert [annotation["id"] for annotation in held] == list(range(1, len(held) + 1))
        crowds += sum(annotation["iscrowd"] for annotation in held)
        for annotation in held:
            x, y, width, height = annotation["bbox"]
            assert 0 <= x < x + width <= 2048 and 0 <= y < y + height <= 1024
    assert crowds > 0


def test_data_frames_are_hard_links(scenes: Path, coco: Path) -> None:
    for split in ("train", "val"):
        for image in annotations(coco, split)["images"]:
            target = coco / f"{split}2017" / image["file_name"]
            assert target.samefile(scenes / "leftImg8bit" / split / image["file_name"])
            assert not target.is_symlink()


def test_data_manifest_and_last_line_agree_with_the_files(scenes: Path, coco: Path) -> None:
    manifest = json.loads((coco / "manifest.json").read_text())
    assert (manifest["workload"], manifest["source"]) == ("ssd", str(scenes))
    assert manifest["generator"]["settings"] == {"truth": "auto", "coarse": "no", "segmentation": "rle"}
    assert manifest["categories"] == [category["name"] for category in annotations(coco)["categories"]]
    files = tree(coco)
    for split, held in manifest["splits"].items():
        sizes = [path.stat().st_size for path in (coco / f"{split}2017").rglob("*.png")]
        count = len(annotations(coco, split)["annotations"])
        assert held == {
            "images": len(sizes), "annotations": count, "image_bytes": sum(sizes), "label_bytes": 0,
            "width": 2048, "height": 1024,
        }  # fmt: skip
        assert f"annotations/left_out_{split}2017.json" in files
    last = summary(convert(scenes, coco))
    assert last["manifest_sha256"] == files["manifest.json"]
    assert (last["images"], last["warnings"], last["skipped"]) == (4, [], True)
    assert last["mean_image_bytes"] == round(last["image_bytes"] / 4)


def test_data_result_depends_neither_on_workers_nor_on_the_kind_of_truth(
    source: Path, tmp_path: Path, coco: Path
) -> None:
    convert(source, tmp_path / "two", workers=2)
    for path in source.glob("gtFine/*/*/*_polygons.json"):
        path.unlink()
    convert(source, tmp_path / "instances")
    for name in ("two", "instances"):
        assert {**tree(tmp_path / name), "manifest.json": ""} == {**tree(coco), "manifest.json": ""}


def test_data_polygons_alone_give_the_same(source: Path, tmp_path: Path, coco: Path) -> None:
    for path in source.glob("gtFine/*/*/*.png"):
        path.unlink()
    convert(source, tmp_path / "out")
    assert {**tree(tmp_path / "out"), "manifest.json": ""} == {**tree(coco), "manifest.json": ""}


def test_data_nested_layout_upper_case_links_and_strange_files(source: Path, tmp_path: Path, coco: Path) -> None:
    nested = tmp_path / "nested"
    for kind in ("leftImg8bit", "gtFine"):
        (nested / f"{kind}_trainvaltest").mkdir(parents=True)
        (source / kind).rename(nested / f"{kind}_trainvaltest" / kind)
    images = nested / "leftImg8bit_trainvaltest" / "leftImg8bit"
    shutil.copytree(images / "val", images / "test")
    aachen = images / "train" / "aachen"
    picture = aachen / "aachen_000000_000019_leftImg8bit.png"
    picture.rename(tmp_path / "elsewhere.png")
    picture.with_suffix(".PNG").symlink_to(tmp_path / "elsewhere.png")
    (aachen / "._aachen_000000_000019_leftImg8bit.png").write_bytes(b"of a Mac")
    (images / "train" / "license.txt").touch()
    convert(nested, tmp_path / "out")
    assert not list((tmp_path / "out").rglob("*.PNG"))
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))
    assert {**tree(tmp_path / "out"), "manifest.json": ""} == {**tree(coco), "manifest.json": ""}


def test_data_one_frame_and_no_val(source: Path, tmp_path: Path) -> None:
    shutil.rmtree(source / "leftImg8bit" / "val")
    shutil.rmtree(source / "gtFine" / "val")
    for city in ("bochum", "jena"):
        shutil.rmtree(source / "gtFine" / "train" / city)
    shutil.rmtree(source / "leftImg8bit" / "train" / "ulm")
    result = convert(source, tmp_path / "out")
    document = annotations(tmp_path / "out", "val")
    assert (document["images"], document["annotations"]) == ([], [])
    assert len(document["categories"]) == 8
    COCO(str(tmp_path / "out" / "annotations" / "instances_val2017.json"))
    warnings = summary(result)["warnings"]
    assert summary(result)["images"] == 1
    assert any(warning.startswith("train: 2 frames without ground truth left out") for warning in warnings)
    assert any(warning.startswith("train: 1 ground truths without a frame left out") for warning in warnings)
    assert "val: no frames; validation has nothing to measure" in warnings
    again = summary(convert(source, tmp_path / "out"))
    assert again["skipped"] and again["warnings"] == warnings


def test_data_second_run_is_skipped_until_a_source_file_changes(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = summary(convert(source, out))
    second = convert(source, out)
    assert summary(second)["skipped"] and summary(second)["seconds"] < 0.5 and "nothing to do" in second.stdout
    assert summary(second)["manifest_sha256"] == first["manifest_sha256"]

    truth = next(source.glob("gtFine/train/aachen/*_instanceIds.png"))
    empty = np.zeros((1024, 2048), dtype=np.uint16)
    empty[10:20, 5:9] = 26007
    Image.fromarray(empty).save(truth)
    third = summary(convert(source, out))
    assert not third["skipped"] and third["manifest_sha256"] != first["manifest_sha256"]
    held = [annotation for annotation in annotations(out)["annotations"] if annotation["image_id"] == 1]
    assert [(annotation["bbox"], annotation["area"]) for annotation in held] == [([5, 10, 4, 10], 40)]

    next(out.glob("val2017/*/*.png")).unlink()
    assert not summary(convert(source, out))["skipped"]
    assert os.listdir(tmp_path) in (["source", "out"], ["out", "source"])


@pytest.mark.parametrize("workers", [1, 2])
def test_data_killed_conversion_leaves_nothing_that_passes_for_whole(
    scenes: Path, tmp_path: Path, coco: Path, workers: int
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, str(CONVERT), "--cityscapes", str(scenes), "--out", str(out), "--workers", str(workers)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob(".out.*.partial/train2017/*/*.png")):
        assert running.poll() is None
        time.sleep(0.001)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not out.exists() and list(tmp_path.iterdir())
    convert(scenes, out)
    assert tree(out) == tree(coco)
    assert list(tmp_path.iterdir()) == [out]


def test_data_killed_conversion_takes_its_workers_along(scenes: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(CONVERT), "--cityscapes", str(scenes), "--out", str(tmp_path / "out")]
    running = subprocess.Popen([*command, "--workers", "2"], stdout=subprocess.DEVNULL)
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
    while len(pids := children.read_text().split()) < 2:
        time.sleep(0.001)
    time.sleep(0.02)
    running.kill()
    running.wait()
    deadline_s = time.monotonic() + 5
    while any(Path(f"/proc/{pid}/exe").exists() for pid in pids) and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)


def test_data_frames_are_copied_to_another_file_system(scenes: Path, other_file_system: Path, coco: Path) -> None:
    result = convert(scenes, other_file_system / "out")
    assert "frames are copied" in result.stdout
    assert tree(other_file_system / "out") == tree(coco)
    assert all(path.stat().st_nlink == 1 for path in (other_file_system / "out").rglob("*.png"))


@pytest.mark.parametrize("workers", [1, 2])
def test_data_conversion_interrupted_again_and_again_ends_with_one_sentence(
    scenes: Path, tmp_path: Path, workers: int
) -> None:
    options = ("--cityscapes", scenes, "--out", tmp_path / "out", "--workers", workers)
    ended = interrupted(CONVERT, *options, begun=lambda: any(tmp_path.glob(".out.*.partial/annotations/*")))
    assert ended == (130, "error: interrupted; run the same command again\n")
    assert not list(tmp_path.iterdir())
