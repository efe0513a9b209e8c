"""Real trees are incomplete: what preparing makes of them, and what it says."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from city_data import TinyFrame, box
from mounting import MOUNTING, need_mounting
from PIL import Image
from test_data_convert_trees import rows
from test_data_programs import PREPARE, prepare, summary, tree

from training.segmentation.args import DEFAULT_TILE
from training.segmentation.centroids import open_centroids
from training.segmentation.dataset import SegmentationSet
from training.segmentation.labels import LABEL_IDS

CAR = [box("car", 10, 10, 20, 20)]


def frame(root: Path, name: str, split: str = "train", city: str = "ulm") -> TinyFrame:
    return TinyFrame(root, split, city, name).write(CAR)


def listed(out: Path, split: str = "train") -> list[str]:
    """The frames that training reads, in its order."""
    data = SegmentationSet.open(out, split, 0, print)
    assert all(data.image(index).is_file() and data.mask(index).is_file() for index in range(len(data)))
    return [data.name(index).partition("/")[2].removesuffix("_leftImg8bit.png") for index in range(len(data))]


@pytest.mark.parametrize("kind", ["labelIds", "polygons"])
def test_frames_with_upper_case_ends_are_placed_under_lower_case_names(tmp_path: Path, kind: str) -> None:
    root, out = tmp_path / "source", tmp_path / "out"
    frame(root, "lower")
    upper = TinyFrame(root, "train", "ulm", "upper").write(CAR, [kind])
    for path in (upper.image, upper.truth(kind)):
        path.rename(path.with_suffix(path.suffix.upper()))
    frame(root, "one", "val", "bonn")
    made = summary(prepare(root, out))
    assert (made["images"], made["warnings"]) == (2, [])
    assert listed(out) == ["ulm/lower", "ulm/upper"]
    assert not list(out.rglob("*.PNG"))


def test_what_is_no_pair_is_told_by_reason_with_an_example(tmp_path: Path) -> None:
    root, out = tmp_path / "source", tmp_path / "out"
    frame(root, "good")
    frame(root, "only_polygons").truth("labelIds").unlink()
    twice = frame(root, "twice")
    second = Path(shutil.copy(twice.image, twice.image.with_suffix(".PNG")))
    no_truth = frame(root, "no_truth")
    other_truth = frame(root, "other_truth")
    for one, kinds in ((no_truth, ["labelIds", "polygons", "instanceIds"]), (other_truth, ["labelIds", "polygons"])):
        for kind in kinds:
            one.truth(kind).unlink()
    no_image, dangling, looping, folder = (frame(root, name) for name in ("no_image", "dangling", "looping", "folder"))
    for one in (no_image, dangling, looping, folder):
        one.image.unlink()
    dangling.image.symlink_to(tmp_path / "nowhere.png")
    looping.image.symlink_to(looping.image)
    folder.image.mkdir()
    dummy, coarse = frame(root, "dummy", "test"), frame(root, "coarse", "train_extra")
    result = prepare(root, out)
    assert listed(out) == ["ulm/good", "ulm/only_polygons", "ulm/twice"]
    table = rows(result.stdout)
    assert {row: counts for row, (counts, _) in table.items()} == {
        "frames read": [3, 0],
        "from labelIds": [2, 0],
        "from polygons": [1, 0],
        "frames kept": [3, 0],
        "MB of frames kept": [0, 0],
        "left out: frames without ground truth": [1, 0],
        "left out: frames with neither labelIds nor polygons": [1, 0],
        "left out: second files of the same frame": [1, 0],
        "left out: links that lead to no file": [2, 0],
        "left out: other files": [1, 0],
        "left out: ground truths without a frame": [4, 0],
    }
    assert table["left out: frames without ground truth"][1] == str(no_truth.image)
    assert table["left out: frames with neither labelIds nor polygons"][1] == str(other_truth.image)
    assert table["left out: second files of the same frame"][1] in (str(second), str(twice.image))
    assert table["left out: links that lead to no file"][1] == str(dangling.image)
    assert table["left out: other files"][1] == str(folder.image)
    for part, one in (("test, whose ground truth is a dummy", dummy), ("train_extra, which have coarse", coarse)):
        (line,) = (line for line in result.stdout.splitlines() if line.startswith(f"not read: 1 frames of {part}"))
        assert line.endswith(f", the first {one.image}") and "--coarse" not in line
    warned = summary(result)["warnings"]
    assert f"train: 2 links that lead to no file left out, the first {dangling.image}" in warned
    assert "val: no frames; validation has nothing to measure" in warned and len(warned) == 6
    assert [line for line in result.stdout.splitlines() if line.startswith("warning: ")] == [
        f"warning: {sentence}" for sentence in warned
    ]
    again = prepare(root, out)
    assert summary(again)["skipped"] and rows(again.stdout) == table and summary(again)["warnings"] == warned


def test_a_source_without_a_pair_of_train_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "source"
    frame(root, "one", "val")
    only = frame(root, "only")
    only.image.unlink()
    result = prepare(root, tmp_path / "out", check=False)
    sentence = f"error: {root}: no frame of train has both a picture and ground truth; train: 1 ground truths without"
    assert result.returncode == 2 and result.stderr.startswith(sentence) and len(result.stderr.splitlines()) == 1


def damaged(path: Path) -> None:
    """One bit in the middle, which a decoder may not notice."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def grey(path: Path, size: tuple[int, int], value: int = 7) -> None:
    Image.fromarray(np.full(size, value, np.uint8)).save(path)


def test_frames_that_cannot_be_used_are_left_out_and_told(tmp_path: Path) -> None:
    root, out = tmp_path / "source", tmp_path / "out"
    hurt: dict[str, Callable[[TinyFrame], object]] = {
        "cut_image": lambda one: os.truncate(one.image, 60),
        "bit_of_image": lambda one: damaged(one.image),
        "no_image": lambda one: one.image.write_bytes(b""),
        "grey_image": lambda one: grey(one.image, (48, 96)),
        "cut_mask": lambda one: os.truncate(one.truth("labelIds"), 60),
        "bit_of_mask": lambda one: damaged(one.truth("labelIds")),
        "other_size": lambda one: grey(one.truth("labelIds"), (48, 90)),
        "other_label": lambda one: grey(one.truth("labelIds"), (48, 96), 99),
    }
    for city, name in [("ulm", "good"), *(("bonn", name) for name in hurt)]:
        one = frame(root, name, city=city)
        hurt.get(name, lambda _: None)(one)
    grey(frame(root, "bad", "val").image, (48, 96))
    result = prepare(root, out)
    assert listed(out) == ["ulm/good"]
    table = rows(result.stdout)
    reasons = {row: counts for row, (counts, _) in table.items() if row.startswith("left out: frames")}
    assert reasons == {
        "left out: frames whose picture cannot be read": [4, 1],
        "left out: frames whose ground truth cannot be read": [2, 0],
        "left out: frames of another size than their ground truth": [1, 0],
        "left out: frames with labels that Cityscapes does not have": [1, 0],
    }
    examples = " ".join(example for _, example in table.values())
    assert str(root / "leftImg8bit") in examples and "label id 99" in examples and "partial" not in result.stdout
    warned = summary(result)["warnings"]
    assert len(warned) == 6 and "val: no frames; validation has nothing to measure" in warned
    again = prepare(root, out)
    assert summary(again)["skipped"] and rows(again.stdout) == table and summary(again)["warnings"] == warned


def test_without_a_usable_frame_of_train_nothing_is_made(tmp_path: Path) -> None:
    root, out = tmp_path / "source", tmp_path / "out"
    os.truncate(frame(root, "cut").image, 60)
    result = prepare(root, out, check=False)
    sentence = f"error: {root}: no frame of train can be used; 1 frames whose picture cannot be read, the first {root}"
    assert result.returncode == 2 and result.stderr.startswith(sentence) and not out.exists()


def test_the_same_source_gives_the_same_set(tmp_path: Path) -> None:
    """Wherever and whenever it is made: trials of sets with the same manifest are compared."""
    root = tmp_path / "source"
    for number in range(3):
        frame(root, f"a_{number}")
    frame(root, "one", "val")
    made = [summary(prepare(root, tmp_path / str(workers), workers=workers)) for workers in (1, 2)]
    assert made[0]["manifest_sha256"] == made[1]["manifest_sha256"]
    assert tree(tmp_path / "1") == tree(tmp_path / "2")


def test_centroids_are_those_of_the_masks_in_the_order_of_the_list(tmp_path: Path, cache: Path) -> None:
    """Of names of which one begins as another does, too: sorted as frames and as files they come in another order."""
    root, out = tmp_path / "source", tmp_path / "out"
    for number, name in enumerate(("a", "a_b", "a_z", "b")):
        TinyFrame(root, "train", "ulm", name).write([box("car", 5 + 9 * number, 5 + 4 * number, 20, 20)])
    prepare(root, out)
    kept = open_centroids(SegmentationSet.open(out, "train", 0, print), DEFAULT_TILE, print)
    shutil.copytree(out / "leftImg8bit", tmp_path / "bare" / "leftImg8bit")
    shutil.copytree(out / "gtFine", tmp_path / "bare" / "gtFine")
    read = open_centroids(SegmentationSet.open(tmp_path / "bare", "train", 0, print), DEFAULT_TILE, print)
    assert read.image.tolist() == [0, 1, 2, 3]  # a car in each
    for name in ("class_offsets", "image", "places"):
        assert np.array_equal(getattr(kept, name), getattr(read, name)), name


@pytest.mark.parametrize("kept_dates", [True, False])
def test_the_index_serves_a_copy_and_no_set_to_which_files_came(tmp_path: Path, kept_dates: bool, cache: Path) -> None:
    root, out = tmp_path / "source", tmp_path / "out"
    frame(root, "one")
    frame(root, "two")
    prepare(root, out)
    copied = Path(shutil.copytree(out, tmp_path / "copied"))
    for folder in (path for path in copied.glob("*/train/*") if path.is_dir() and not kept_dates):
        os.utime(folder)
    told: list[str] = []
    data = SegmentationSet.open(copied, "train", 0, told.append)
    assert (told == []) == kept_dates and len(data) == 2
    told.clear()
    open_centroids(data, DEFAULT_TILE, told.append)
    assert told == []
    (copied / "leftImg8bit" / "train" / "ulm" / "one_leftImg8bit.png").unlink()
    fewer = SegmentationSet.open(copied, "train", 0, print)
    assert open_centroids(fewer, DEFAULT_TILE, told.append).images == len(fewer) == 1 and told


def test_what_a_node_kept_of_a_set_is_not_taken_for_that_of_another_made_in_its_place(
    tmp_path: Path, cache: Path
) -> None:
    """Lists of train and val together are kept by each node, whose cache goes by the dates of folders."""
    root, out = tmp_path / "source", tmp_path / "out"
    one, other = frame(root, "one"), frame(root, "other")
    frame(root, "one", "val")
    content = one.image.read_bytes()
    os.truncate(one.image, 60)
    prepare(root, out)
    before = SegmentationSet.open(out, "train", 3, print)
    assert len(before) == 2 and open_centroids(before, 64, print).images == 2
    one.image.write_bytes(content)
    prepare(root, out)
    after = SegmentationSet.open(out, "train", 3, print)
    seen = open_centroids(after, 64, print)
    assert len(after) == 3 and seen.images == 3
    other.truth("labelIds").unlink()
    grey(other.truth("labelIds"), (48, 96), LABEL_IDS[0])
    prepare(root, out)
    found = open_centroids(SegmentationSet.open(out, "train", 3, print), 64, print)
    assert 0 not in seen.present() and 0 in found.present()


@pytest.mark.parametrize("pages", range(5))  # beyond those of the pair: for its record, and more and more of the index
def test_a_full_disk_is_told_of_the_set_itself(tmp_path: Path, pages: int) -> None:
    need_mounting()
    one = frame(tmp_path / "source", "one")
    pages += sum(-(-path.stat().st_size // 4096) for path in (one.image, one.truth("labelIds")))
    program = shlex.join([sys.executable, str(PREPARE), "--cityscapes", str(one.root), "--out", "/mnt/out"])
    mount = f"mount -t tmpfs -o size={4 * pages}k none /mnt"
    result = subprocess.run([*MOUNTING, f"{mount} && {program}"], capture_output=True, text=True, check=False)
    assert result.stderr == "error: /mnt/out: No space left on device; make room there, or give another --out\n"
    assert result.returncode == 2
