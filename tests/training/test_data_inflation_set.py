"""Inflated sets of detection: exactly so many images, their boxes, and the same bytes however they are made."""

from __future__ import annotations

import json
import re
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_data import Said, as_lists, plain
from inflation_data import HEIGHT, MEAN_MB, TRAIN, VAL, WIDTH, command, folders, inflate, make_base, refused, same
from PIL import Image
from test_data_programs import tree

from training.data.indexing.index import open_index, write_index
from training.data.inflation.layout import shards_of
from training.data.manifest import read_manifest
from training.data.verification.run import verify

FACTOR = 5
SETTINGS = ("--factor", FACTOR, "--mean-mb", MEAN_MB)
PROGRESS = re.compile(r"([\d,]+) of ([\d,]+) images, ([\d.,]+) images/s, ([\d.,]+) MB/s, .* left")


@pytest.fixture(scope="module")
def out(base: Path, workload: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by one worker. Not to be changed."""
    folder = tmp_path_factory.mktemp("inflated") / "out"
    inflate(workload, base, folder, *SETTINGS)
    return folder


@pytest.fixture(scope="module")
def ssd(bases: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inflated") / "ssd"
    inflate("ssd", bases["ssd"], folder, *SETTINGS)
    return folder


def annotations(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "annotations" / "instances_train2017.json").read_text())
    return document


def image_folder(workload: str, split: str = "train") -> str:
    return f"{split}2017" if workload == "ssd" else f"leftImg8bit/{split}"


@pytest.mark.parametrize(("factor", "images"), [(327, 972_825), (681, 2_025_975)])
def test_the_papers_factors_give_the_papers_sets(factor: int, images: int) -> None:
    frames = [f"aachen_{number:06d}_000019" for number in range(2975)]
    shards = shards_of(frames, factor)
    assert sum(shard.images for shard in shards) == images
    assert [shard.name for shard in shards] == frames


def test_folders_hold_at_most_a_thousand_variants_and_sort_as_their_frames_do() -> None:
    shards = shards_of(["jena_000000_000019", "ulm_000000_000019"], 12_345)
    assert max(shard.images for shard in shards) == 1000
    assert [shard.name for shard in shards] == sorted({shard.name for shard in shards})
    for one, other in pairwise(shards):
        assert other.first == (one.end if one.frame == other.frame else 0)


def test_every_frame_becomes_as_many_images_as_asked_for(workload: str, base: Path, out: Path) -> None:
    train = out / image_folder(workload)
    for name in TRAIN:
        names = sorted(path.name for path in (train / name).iterdir())
        assert names == [f"{name}_v{variant:04d}_leftImg8bit.png" for variant in range(FACTOR)]
        own = base / image_folder(workload) / name.partition("_")[0] / f"{name}_leftImg8bit.png"
        contents = [(train / name / file).read_bytes() for file in names]
        assert contents[0] == own.read_bytes() and len(set(contents)) == FACTOR
    assert {path.name for path in train.iterdir()} == set(TRAIN)
    val = image_folder(workload, "val")
    assert tree(out / val) == tree(base / val) and len(tree(out / val)) == len(VAL)


def test_the_set_is_sound_and_its_manifest_says_how_it_was_made(workload: str, base: Path, out: Path) -> None:
    assert not verify(out, None, 0, 1).damages
    manifest, source = read_manifest(out, workload), read_manifest(base, workload)
    assert manifest and source
    made = manifest.generator
    assert made.program == f"training/{workload}/inflate.py"
    noise = float(made.settings.pop("noise"))
    assert made.settings == {
        "factor": "5", "method": "augment", "format": "png", "mean-mb": f"{MEAN_MB}", "seed": "0",
    }  # fmt: skip
    assert noise > 0 and manifest.splits["val"] == source.splits["val"]
    train = manifest.splits["train"]
    images = [path.stat().st_size for path in (out / image_folder(workload)).rglob("*.png")]
    masks = [path.stat().st_size for path in out.glob("gtFine/train/*/*")]
    assert (train.images, train.image_bytes, train.label_bytes) == (3 * FACTOR, sum(images), sum(masks))
    assert (sum(images) + sum(masks)) / len(images) == pytest.approx(MEAN_MB * 1e6, rel=0.1)
    assert (train.width, train.height) == (WIDTH, HEIGHT) and manifest.categories == source.categories


def test_ids_and_boxes_follow_frames_and_variants(bases: dict[str, Path], ssd: Path) -> None:
    document, source = annotations(ssd), annotations(bases["ssd"])
    names = [f"{name}/{name}_v{variant:04d}_leftImg8bit.png" for name in TRAIN for variant in range(FACTOR)]
    assert [image["file_name"] for image in document["images"]] == names
    assert [image["id"] for image in document["images"]] == list(range(1, len(names) + 1))
    assert document["categories"] == source["categories"]
    ids = [annotation["id"] for annotation in document["annotations"]]
    assert ids == sorted(set(ids))
    kept = ("bbox", "area", "iscrowd", "category_id")
    for number, frame in enumerate(sorted(source["images"], key=lambda image: image["file_name"])):
        own, original = (
            [{key: found[key] for key in kept} for found in of["annotations"] if found["image_id"] == image]
            for of, image in ((source, frame["id"]), (document, 1 + number * FACTOR))
        )
        assert own == original
    for annotation in document["annotations"]:
        left, top, width, height = annotation["bbox"]
        assert annotation.keys() == {"id", "image_id", *kept}
        assert 0 <= left < left + width <= WIDTH and 0 <= top < top + height <= HEIGHT
        assert 0 < annotation["area"] <= width * height
    assert len({json.dumps(annotation["bbox"]) for annotation in document["annotations"]}) > len(names)


def test_the_index_is_that_of_the_document_and_is_taken_as_it_is(ssd: Path, tmp_path: Path, cache: Path) -> None:
    path, told = ssd / "annotations" / "instances_train2017.json", Said()
    index = open_index(path, told)
    assert not told and not cache.exists()
    assert as_lists(index) == plain(path.read_text())
    write_index(path, tmp_path / "index", 1)
    assert tree(tmp_path / "index") == tree(path.with_suffix(".index"))


def test_an_image_without_a_visible_object_has_no_annotation(ssd: Path) -> None:
    document = annotations(ssd)
    without = {image["id"] for image in document["images"]} - {one["image_id"] for one in document["annotations"]}
    assert without and min(without) > 2 * FACTOR + 1
    index = open_index(ssd / "annotations" / "instances_train2017.json", Said())
    assert index.images_without_box == len(without)


def test_a_base_set_of_polygons_gives_the_same(bases: dict[str, Path], ssd: Path, tmp_path: Path) -> None:
    base = make_base("ssd", tmp_path, "--segmentation", "polygons")
    inflate("ssd", base, tmp_path / "out", *SETTINGS)
    assert tree(tmp_path / "out" / "train2017") == tree(ssd / "train2017")
    assert annotations(tmp_path / "out") == annotations(ssd)


def test_a_base_set_without_masks_can_only_be_copied(tmp_path: Path) -> None:
    base = make_base("ssd", tmp_path, "--segmentation", "none")
    assert "no masks to move boxes by; convert it with --segmentation rle" in refused(
        "ssd", base, tmp_path / "out", *SETTINGS
    )
    inflate("ssd", base, tmp_path / "out", "--factor", 2, "--method", "copy")
    assert len(annotations(tmp_path / "out")["annotations"]) == 2 * len(annotations(base)["annotations"])


def test_any_number_of_workers_and_nodes_gives_the_same_bytes(
    workload: str, base: Path, out: Path, tmp_path: Path
) -> None:
    inflate(workload, base, tmp_path / "three workers", *SETTINGS, workers=3)
    assert same(tmp_path / "three workers", out)

    by_turns = tmp_path / "by turns"
    planned = inflate(workload, base, by_turns, *SETTINGS, "--phase", "plan").summary
    assert (planned["images"], planned["left_images"], planned["skipped"]) == (15, 15, False)
    assert planned["left_bytes"] == pytest.approx(15 * MEAN_MB * 1e6, rel=0.2)
    made = [inflate(workload, base, by_turns, "--phase", "make", "--node", n, "--nodes", 2).summary for n in (1, 0)]
    assert sum(part["images"] for part in made) == 15 and all(part["bytes"] > 0 for part in made)
    inflate(workload, base, by_turns, *SETTINGS, "--phase", "finish")
    assert same(by_turns, out)

    at_once = tmp_path / "at once"
    inflate(workload, base, at_once, *SETTINGS, "--phase", "plan")
    make = [command(workload, base, at_once, "--phase", "make", "--node", n, "--nodes", 2) for n in (0, 1)]
    nodes = [subprocess.Popen(one, stdout=subprocess.PIPE, text=True, cwd="/") for one in make]
    printed = [node.communicate(timeout=120)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], printed
    inflate(workload, base, at_once, "--phase", "finish")
    assert same(at_once, out)


def test_another_seed_gives_other_variants_of_the_same_frames(
    bases: dict[str, Path], ssd: Path, tmp_path: Path
) -> None:
    inflate("ssd", bases["ssd"], tmp_path / "out", *SETTINGS, "--seed", 1)
    one, other = tree(ssd / "train2017"), tree(tmp_path / "out" / "train2017")
    assert one.keys() == other.keys()
    assert {path for path in one if one[path] == other[path]} == {path for path in one if "_v0000_" in path}


def test_copies_are_real_and_keep_their_labels(workload: str, base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert inflate(workload, base, out, "--factor", 3, "--method", "copy").summary["images"] == 9
    for name in TRAIN:
        own = base / image_folder(workload) / name.partition("_")[0] / f"{name}_leftImg8bit.png"
        for path in (out / image_folder(workload) / name).iterdir():
            assert path.read_bytes() == own.read_bytes() and path.stat().st_nlink == 1
    if workload == "ssd":
        boxes = [
            [one["bbox"] for one in annotations(out)["annotations"] if one["image_id"] == image] for image in (1, 2, 3)
        ]
        assert boxes[0] == boxes[1] == boxes[2] != []
    assert not verify(out, None, 0, 1).damages


def test_jpeg_is_encoded_anew(workload: str, base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    inflate(workload, base, out, "--factor", 2, "--format", "jpeg")
    images = sorted((out / image_folder(workload)).rglob("*_leftImg8bit.*"))
    assert len(images) == 6 and {path.suffix for path in images} == {".jpg"}
    with Image.open(images[0]) as image:
        frame = np.asarray(Image.open(base / image_folder(workload) / "aachen" / f"{TRAIN[0]}_leftImg8bit.png"), int)
        assert image.format == "JPEG" and np.abs(np.asarray(image, int) - frame).mean() < 8
    assert {path.suffix for path in (out / image_folder(workload, "val")).rglob("*.*")} == {".png"}
    assert not verify(out, None, 0, 1).damages


def test_progress_ends_with_a_line_of_all(bases: dict[str, Path], tmp_path: Path) -> None:
    lines = inflate("ssd", bases["ssd"], tmp_path / "out", "--factor", 4, "--method", "copy").lines
    told = [match for line in lines if (match := PROGRESS.fullmatch(line))]
    assert (told[-1][1], told[-1][2]) == ("12", "12") and float(told[-1][3]) > 0


def test_a_whole_set_is_left_as_it_is(workload: str, base: Path, out: Path) -> None:
    dates = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    found = inflate(workload, base, out, *SETTINGS).summary
    assert found["skipped"] and found["images"] == 15
    planned = inflate(workload, base, out, *SETTINGS, "--phase", "plan").summary
    assert {**planned, "seconds": 0} == {**found, "seconds": 0}
    for phase in ("make", "finish"):
        assert inflate(workload, base, out, "--phase", phase).summary["skipped"]
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()} == dates
    assert folders(out)
