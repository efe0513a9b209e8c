"""Data sets, disks and locales that are not as they should be: one sentence each, through `airflow dags test`."""

from __future__ import annotations

import json
import re
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


def test_frames_that_cannot_be_used_are_left_out_and_said(faults: World, frames: Path) -> None:
    no_picture = sorted(frames.glob("leftImg8bit/train/*/*.png"))[0]
    no_picture.write_text("not a picture")
    _, too_small, of_unknown, _ = sorted(frames.glob("gtFine/train/*/*_instanceIds.png"))
    script = "import sys; from PIL import Image; Image.new('I;16', (64, 32)).save(sys.argv[1])"
    subprocess.run([str(faults.cluster.node_python), "-c", script, str(too_small)], check=True)
    of_unknown.unlink()
    polygons = of_unknown.with_name(of_unknown.name.replace("_instanceIds.png", "_polygons.json"))
    document = json.loads(polygons.read_text())
    document["objects"][0]["label"] = "hovercraft"
    polygons.write_text(json.dumps(document))
    status, output = faults.run({**QUICK, "cityscapes": str(frames)})
    assert status == 0 and "Traceback" not in output, output[-3000:]
    for sentence in (
        "not a PNG; replace it with the frame's picture, or remove it",
        "64x32 px",
        "unknown label 'hovercraft'",
    ):
        assert re.search(rf"warning: train: 1 frames .* left out, the first .*{re.escape(sentence)}", output), sentence
    (row,) = faults.results()["trials"]
    data = row["provenance"]["dataset"]
    assert (data["images"], data["factor"], len(data["warnings"])) == (1, 1, 3)


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
