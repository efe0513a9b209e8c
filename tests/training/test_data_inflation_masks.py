"""Inflated sets of segmentation: masks stay masks, and nobody reads them all to list them or to find their classes."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from index_data import Said
from inflation_data import (
    CAR,
    MEAN_MB,
    PERSON,
    ROAD,
    SKY,
    TRAIN,
    TRAINING,
    VAL,
    inflate,
    make_base,
    run_program,
    write_cityscapes,
)
from PIL import Image

from training.data.verification.run import verify
from training.segmentation.args import DEFAULT_TILE
from training.segmentation.centroids import open_centroids
from training.segmentation.dataset import SegmentationSet
from training.segmentation.pairs import read_pair

FACTOR = 4
AACHEN = [name for name in TRAIN if name.startswith("aachen")]


@pytest.fixture(scope="module")
def out(bases: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inflated") / "out"
    inflate("segmentation", bases["segmentation"], folder, "--factor", FACTOR, "--mean-mb", MEAN_MB, workers=2)
    return folder


def names(data: SegmentationSet) -> list[str]:
    return [data.name(index) for index in range(len(data))]


def test_masks_have_only_labels_that_their_frame_has(bases: dict[str, Path], out: Path) -> None:
    differ = 0
    for name in TRAIN:
        own = np.asarray(
            Image.open(bases["segmentation"] / f"gtFine/train/{name.split('_')[0]}/{name}_gtFine_labelIds.png")
        )
        for variant in range(FACTOR):
            mask = np.asarray(Image.open(out / f"gtFine/train/{name}/{name}_v{variant:04d}_gtFine_labelIds.png"))
            assert mask.shape == own.shape and set(np.unique(mask)) <= set(np.unique(own)) <= {ROAD, SKY, CAR, PERSON}
            differ += not np.array_equal(mask, own)
    assert differ == len(TRAIN) * (FACTOR - 1)


def test_pairs_are_listed_in_order_and_can_be_read(out: Path, cache: Path) -> None:
    told = Said()
    data = SegmentationSet.open(out, "train", 0, told)
    assert not told and not cache.exists()
    assert names(data) == [
        f"train/{name}/{name}_v{variant:04d}_leftImg8bit.png" for name in TRAIN for variant in range(FACTOR)
    ]
    for index in range(len(data)):
        read_pair(data.image(index), data.mask(index))
    val = SegmentationSet.open(out, "val", 0, told)
    assert names(val) == [f"val/lindau/{name}_leftImg8bit.png" for name in VAL] and not told


def test_centroids_are_those_that_reading_the_masks_gives(out: Path, tmp_path: Path, cache: Path) -> None:
    told = Said()
    kept = open_centroids(SegmentationSet.open(out, "train", 0, told), DEFAULT_TILE, told)
    assert not told and not cache.exists()
    bare = tmp_path / "bare"
    shutil.copytree(out, bare, ignore=shutil.ignore_patterns("index"))
    read = open_centroids(SegmentationSet.open(bare, "train", 0, told), DEFAULT_TILE, told)
    assert told.has("reading 12 masks")
    assert kept.images == read.images == 12
    for one, other in ((kept.class_offsets, read.class_offsets), (kept.image, read.image), (kept.places, read.places)):
        assert np.array_equal(one, other)


def test_a_copy_with_other_dates_needs_no_mask_to_be_read(out: Path, tmp_path: Path, cache: Path) -> None:
    told = Said()
    copy = Path(shutil.copytree(out, tmp_path / "copy"))
    (copy / "leftImg8bit/train" / TRAIN[0]).touch()
    data = SegmentationSet.open(copy, "train", 0, told)
    assert told.has("listing ") and len(data) == 12
    open_centroids(data, DEFAULT_TILE, told)
    assert not told.has("reading")


def test_a_set_made_anew_with_more_variants_is_listed_anew(bases: dict[str, Path], tmp_path: Path, cache: Path) -> None:
    """Under --cv each node keeps its own list, which goes by the dates of folders; their names stay the same."""
    lengths = []
    for factor in (2, 4):
        inflate("segmentation", bases["segmentation"], tmp_path / "out", "--factor", factor, "--method", "copy")
        lengths.append(len(SegmentationSet.open(tmp_path / "out", "train", 3, print)))
        shutil.rmtree(tmp_path / "out")
    assert lengths == [2 * len(TRAIN) + len(VAL), 4 * len(TRAIN) + len(VAL)]


def test_a_base_set_without_a_usable_frame_of_val_is_inflated(tmp_path: Path) -> None:
    source = write_cityscapes(tmp_path / "cityscapes")
    for path in source.glob("leftImg8bit/val/*/*.png"):
        os.truncate(path, 60)
    made = run_program(TRAINING / "segmentation" / "prepare.py", "--cityscapes", source, "--out", tmp_path / "base")
    assert made.returncode == 0 and "1 frames whose picture cannot be read left out" in made.stdout
    done = inflate("segmentation", tmp_path / "base", tmp_path / "out", "--factor", 2, "--method", "copy")
    assert done.summary["images"] == 2 * len(TRAIN)
    assert not verify(tmp_path / "out", None, 0, 1).damages


def test_frames_that_are_jpeg_become_pngs_or_are_copied_as_they_are(tmp_path: Path) -> None:
    base = make_base("segmentation", tmp_path, ending=".jpg")
    for method, ending, start in (("augment", ".png", b"\x89PNG"), ("copy", ".jpg", b"\xff\xd8\xff\xe0")):
        inflate("segmentation", base, tmp_path / method, "--factor", 2, "--method", method)
        pictures = sorted((tmp_path / method / "leftImg8bit" / "train").rglob("*.*"))
        assert len(pictures) == 6 and {path.suffix for path in pictures} == {ending}
        assert {path.read_bytes()[:4] for path in pictures} == {start}
        assert len(SegmentationSet.open(tmp_path / method, "train", 0, Said())) == 6


@pytest.mark.parametrize(
    ("cv", "split", "cities"),
    [
        (1, "val", ["aachen"]),
        (1, "train", ["lindau", "jena"]),
        (2, "val", ["jena"]),
        (2, "train", ["lindau", "aachen"]),
    ],
)
def test_cross_validation_keeps_a_city_together(out: Path, cv: int, split: str, cities: list[str]) -> None:
    found = names(SegmentationSet.open(out, split, cv, Said()))
    assert list(dict.fromkeys(name.split("/")[1].split("_")[0] for name in found)) == cities
    assert len(found) == {"aachen": 2 * FACTOR, "jena": FACTOR, "lindau": 1}[cities[0]] + (
        {"aachen": 2 * FACTOR, "jena": FACTOR}[cities[1]] if len(cities) > 1 else 0
    )
