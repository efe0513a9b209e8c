"""Data sets, disks and locales that are not as they should be: one sentence each, through `airflow dags test`."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from refusals import QUICK, refused, with_local
from world import World


@pytest.fixture
def frames(scenes: Path, tmp_path: Path) -> Path:
    """A data set of the test's own, to be damaged."""
    folder = tmp_path / "cityscapes"
    shutil.copytree(scenes, folder)
    return folder


def truth_of(frames: Path, kind: str) -> Path:
    return sorted(frames.glob(f"gtFine/train/*/*_gtFine_{kind}"))[0]


def test_a_data_set_that_is_not_there(faults: World) -> None:
    refused(faults, {**QUICK, "cityscapes": "/no/such/folder"}, "node1: no data set folder /no/such/folder: mount it")


def test_a_data_set_without_images(faults: World, frames: Path) -> None:
    for image in frames.glob("leftImg8bit/*/*/*.png"):
        image.unlink()
    refused(faults, {**QUICK, "cityscapes": str(frames)}, "no frame of train has both a picture and ground truth")


def test_a_picture_that_is_none(faults: World, frames: Path) -> None:
    sorted(frames.glob("leftImg8bit/train/*/*.png"))[0].write_text("not a picture")
    refused(
        faults, {**QUICK, "cityscapes": str(frames)}, "not a PNG; replace it with the frame's picture, or remove it"
    )


def test_a_mask_of_another_size(faults: World, frames: Path) -> None:
    script = "import sys; from PIL import Image; Image.new('I;16', (64, 32)).save(sys.argv[1])"
    python = str(faults.cluster.node_python)
    subprocess.run([python, "-c", script, str(truth_of(frames, "instanceIds.png"))], check=True)
    refused(faults, {**QUICK, "cityscapes": str(frames)}, "64x32")


def test_an_unknown_label(faults: World, frames: Path) -> None:
    for mask in frames.glob("gtFine/train/*/*_instanceIds.png"):
        mask.unlink()
    polygons = truth_of(frames, "polygons.json")
    document = json.loads(polygons.read_text())
    document["objects"][0]["label"] = "hovercraft"
    polygons.write_text(json.dumps(document))
    refused(faults, {**QUICK, "cityscapes": str(frames)}, "unknown label 'hovercraft'")


def test_images_without_annotations(faults: World, frames: Path) -> None:
    shutil.rmtree(frames / "gtFine" / "train")
    refused(faults, {**QUICK, "cityscapes": str(frames)}, "no frame of train has both a picture and ground truth")


def test_an_empty_validation_split_is_said_and_does_no_harm(faults: World, frames: Path) -> None:
    shutil.rmtree(frames / "leftImg8bit" / "val")
    status, output = faults.run({**QUICK, "cityscapes": str(frames)})
    assert status == 0 and "val: no frames; validation has nothing to measure" in output, output[-3000:]


@pytest.fixture
def small_disk() -> Iterator[Any]:
    """Mounts a file system of a few megabytes, or a read-only one, over a folder until the test ends."""
    mounted: list[Path] = []

    def mount(folder: Path, options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "scaleout-test", str(folder)], check=True)
        mounted.append(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_results_folder_that_would_fill_up(faults: World, small_disk: Any) -> None:
    small_disk(faults.home / "results", "size=8m")
    refused(faults, QUICK, "200 MB are needed for results: free some, or name another place in SCALEOUT_HOME")


def test_a_remote_root_that_would_fill_up(faults: World, own_config: Path, small_disk: Any) -> None:
    small_disk(faults.cluster.folder / "node1" / "home" / "small", "size=8m")
    chosen = with_local(own_config, "remote_root: ~/scaleout ", "remote_root: ~/small/scaleout ")
    refused(faults, QUICK, "node1: ~/small/scaleout has 0.01 GB free and 1 GB is needed: free some", **chosen)


def test_a_home_on_a_read_only_file_system(faults: World, own_config: Path, small_disk: Any) -> None:
    small_disk(faults.cluster.folder / "node1" / "home" / "sealed", "size=8m,ro")
    chosen = with_local(own_config, "remote_root: ~/scaleout ", "remote_root: ~/sealed/scaleout ")
    refused(faults, QUICK, "the lock cannot be read or written: Read-only file system", **chosen)
    small_disk(faults.home / "results", "size=8m,ro")
    refused(faults, QUICK, "results cannot be written there: Read-only file system", **chosen)


def test_a_locale_that_is_not_utf_8(faults: World) -> None:
    status, output = faults.run(QUICK, LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert status == 0, output[-3000:]
