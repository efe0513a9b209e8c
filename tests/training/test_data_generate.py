"""The generator of scenes: real layout, same bytes for any number of workers, and safe to kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image
from test_data_programs import GENERATE, generate, interrupted, tree


def test_data_generated_set_follows_the_cityscapes_layout(scenes: Path) -> None:
    pictures = sorted(scenes.glob("leftImg8bit/*/*/*.png"))
    assert [str(p.relative_to(scenes / "leftImg8bit")) for p in pictures] == [
        "train/aachen/aachen_000000_000019_leftImg8bit.png",
        "train/bochum/bochum_000000_000019_leftImg8bit.png",
        "train/jena/jena_000000_000019_leftImg8bit.png",
        "train/ulm/ulm_000000_000019_leftImg8bit.png",
        "val/frankfurt/frankfurt_000000_000019_leftImg8bit.png",
        "val/lindau/lindau_000000_000019_leftImg8bit.png",
    ]
    for picture in pictures:
        with Image.open(picture) as image:
            assert (image.size, image.mode) == ((2048, 1024), "RGB")
        truth = str(picture).replace("leftImg8bit.png", "gtFine_{}").replace("leftImg8bit", "gtFine")
        polygons = json.loads(Path(truth.format("polygons.json")).read_text())
        assert (polygons["imgWidth"], polygons["imgHeight"]) == (2048, 1024)
        labels = np.asarray(Image.open(truth.format("labelIds.png")))
        instances = np.asarray(Image.open(truth.format("instanceIds.png"))).astype(int)
        assert np.array_equal(np.where(instances >= 1000, instances // 1000, instances), labels)
        assert 0 < (labels == 0).sum() < 0.02 * labels.size or (labels != 0).all()


def test_data_scenes_hold_instances_groups_and_things_to_leave_out(scenes: Path) -> None:
    found = set()
    for path in scenes.glob("gtFine/*/*/*_polygons.json"):
        found |= {entry["label"] for entry in json.loads(path.read_text())["objects"]}
    assert {"person", "rider", "car", "bicycle", "cargroup", "persongroup", "ego vehicle", "out of roi"} <= found
    assert {"road", "sidewalk", "building", "sky", "vegetation", "license plate"} <= found


def test_data_pictures_are_as_large_as_the_real_ones(scenes: Path) -> None:
    sizes = [path.stat().st_size for path in scenes.glob("leftImg8bit/*/*/*.png")]
    assert 2.3e6 < np.mean(sizes) < 2.9e6


def test_data_same_seed_same_bytes_for_one_and_two_workers(scenes: Path, tmp_path: Path) -> None:
    generate(tmp_path / "set", workers=1)
    assert tree(tmp_path / "set") == tree(scenes)


def test_data_another_seed_replaces_the_frames(tmp_path: Path) -> None:
    generate(tmp_path, train=2, val=1, seed=1)
    first = tree(tmp_path)
    generate(tmp_path, train=1, val=0, seed=2)
    second = tree(tmp_path)
    (picture,) = (name for name in second if name.startswith("leftImg8bit"))
    assert first[picture] != second[picture]


def test_data_finished_set_is_reused_with_one_line(scenes: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in scenes.rglob("*")}
    lines = generate(scenes).stdout.splitlines()
    assert len(lines) == 1 and "nothing to do" in lines[0]
    assert before == {path: path.stat().st_mtime_ns for path in scenes.rglob("*")}


def test_data_damaged_frame_is_made_again(tmp_path: Path) -> None:
    generate(tmp_path, train=2, val=0)
    whole = tree(tmp_path)
    picture = next(tmp_path.glob("leftImg8bit/train/aachen/*.png"))
    picture.write_bytes(picture.read_bytes()[:1000])
    assert "1 to make" in generate(tmp_path, train=2, val=0).stdout
    assert tree(tmp_path) == whole


def test_data_killed_generator_goes_on_and_ends_with_the_same_tree(scenes: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(GENERATE), "--out", str(tmp_path), "--train", "4", "--val", "2"]
    running = subprocess.Popen([*command, "--workers", "2"], stdout=subprocess.DEVNULL)
    while not list(tmp_path.glob("leftImg8bit/train/*/[a-z]*.png")):
        assert running.poll() is None
        time.sleep(0.005)
    running.send_signal(signal.SIGKILL)
    running.wait()
    assert not json.loads((tmp_path / "generated.json").read_text())["finished"]
    generate(tmp_path)
    assert tree(tmp_path) == tree(scenes)


def test_data_generator_leaves_other_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    result = generate(tmp_path, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: {tmp_path}: holds files that this program did not write; give a new or empty folder as --out\n"
    )


def test_data_generator_interrupted_again_and_again_ends_with_one_sentence(tmp_path: Path) -> None:
    options = ("--out", tmp_path, "--train", 8, "--val", 2, "--workers", 2)
    ended = interrupted(GENERATE, *options, begun=(tmp_path / "generated.json").exists)
    assert ended == (130, "error: interrupted; run the same command again\n")
