"""Real trees are incomplete: what the converter makes of them, and what its table says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from city_data import NASTY, TinyFrame, box
from PIL import Image
from test_data_programs import convert, summary, tree

CAR = [box("car", 10, 10, 20, 20)]
PERSON = [box("person", 50, 5, 9, 30)]


def frame(root: Path, name: str, split: str = "train", city: str = "ulm", part: str = "gtFine") -> TinyFrame:
    return TinyFrame(root, split, city, name, part)


def rows(stdout: str) -> dict[str, tuple[list[int], str]]:
    """The table: by row the counts of train and val, and the first example."""
    found = {}
    for line in stdout.splitlines():
        words, _, first = line.partition("   the first ")
        label, *counts = words.rsplit(maxsplit=2)
        if len(counts) == 2 and all(count.isdigit() for count in counts):
            found[label.strip()] = ([int(count) for count in counts], first)
    return found


def file_names(out: Path, split: str = "train") -> list[str]:
    document = json.loads((out / "annotations" / f"instances_{split}2017.json").read_text())
    return [image["file_name"].partition("_leftImg8bit")[0] for image in document["images"]]


def test_data_tree_each_trouble_is_told_apart(tmp_path: Path) -> None:
    root, out = tmp_path / "source", tmp_path / "out"
    good = frame(root, "good").write(CAR)
    only_polygons = frame(root, "only_polygons", city="bonn").write(CAR, ["polygons"])
    only_masks = frame(root, "only_masks", city="bonn").write(CAR, ["instanceIds"])
    no_truth = frame(root, "no_truth")
    no_truth.write_image()
    only_labels = frame(root, "only_labels").write(CAR, ["labelIds"])
    no_image = frame(root, "no_image").write(CAR)
    no_image.image.unlink()
    twice = frame(root, "twice").write(CAR)
    second = shutil.copy(twice.image, twice.image.with_suffix(".PNG"))
    upper = frame(root, "upper").write(CAR)
    for path in (upper.image, upper.truth("instanceIds"), upper.truth("polygons")):
        path.rename(path.with_suffix(path.suffix.upper()))
    dangling = frame(root, "dangling").write(CAR)
    dangling.image.unlink()
    dangling.image.symlink_to(tmp_path / "nowhere.png")
    bad_image = frame(root, "bad_image").write(CAR)
    bad_image.image.write_bytes(b"")
    bad_truth = frame(root, "bad_truth").write(CAR)
    bad_truth.truth("instanceIds").write_bytes(bad_truth.truth("instanceIds").read_bytes()[:-40])
    other_size = frame(root, "other_size").write(CAR)
    Image.new("RGB", (64, 32)).save(other_size.image)
    other_label = frame(root, "other_label").write(CAR)
    Image.fromarray(np.full((48, 96), 57001, np.uint16)).save(other_label.truth("instanceIds"))
    (root / "leftImg8bit" / "train" / "empty").mkdir()
    license_file = root / "gtFine" / "train" / "license.txt"
    license_file.touch()
    (root / "gtFine" / "train" / "ulm" / "subfolder").mkdir()
    (root / "gtFine" / "train" / "ulm" / ".DS_Store").touch()
    frame(root, "dummy", split="test").write([], ["labelIds"])
    frame(root, "val", split="val").write(CAR)

    result = convert(root, out)
    assert file_names(out) == ["bonn/only_masks", "bonn/only_polygons", "ulm/good", "ulm/twice", "ulm/upper"]
    table = rows(result.stdout)
    assert {row: counts for row, (counts, _) in table.items()} == {
        "frames read": [9, 1],
        "from instanceIds": [8, 1],
        "from polygons": [1, 0],
        "frames kept": [5, 1],
        "objects kept, groups included": [5, 1],
        "MB of frames kept": [0, 0],
        "left out: frames without ground truth": [1, 0],
        "left out: frames with neither instanceIds nor polygons": [1, 0],
        "left out: ground truths without a frame": [2, 0],
        "left out: second files of the same frame": [1, 0],
        "left out: links that lead to no file": [1, 0],
        "left out: other files": [2, 0],
        "left out: frames whose picture cannot be read": [1, 0],
        "left out: frames whose ground truth cannot be read": [1, 0],
        "left out: frames of another size than their ground truth": [1, 0],
        "left out: frames with labels that Cityscapes does not have": [1, 0],
    }
    firsts = {row.removeprefix("left out: "): first for row, (_, first) in table.items() if first}
    assert firsts["frames without ground truth"] == str(no_truth.image)
    assert firsts["frames with neither instanceIds nor polygons"] == str(only_labels.image)
    assert firsts["second files of the same frame"] in (str(second), str(twice.image))
    assert firsts["other files"] == str(license_file)
    assert firsts["frames whose picture cannot be read"].startswith(f"{bad_image.image}: not a PNG")
    assert firsts["frames whose ground truth cannot be read"].startswith(
        f"{bad_truth.truth('instanceIds')}: a PNG that was cut off"
    )
    assert firsts["frames of another size than their ground truth"].startswith(
        f"{other_size.truth('instanceIds')}: 96x48"
    )
    assert "unknown label id 57" in firsts["frames with labels that Cityscapes does not have"]
    assert f"not read: 1 frames of test, whose ground truth is a dummy, the first {root}" in result.stdout
    assert len(summary(result)["warnings"]) == 9 and not any(
        "other files" in line for line in summary(result)["warnings"]
    )
    assert good.image.samefile(out / "train2017" / "ulm" / good.image.name)
    assert only_masks.image.exists() and only_polygons.image.exists()

    again = convert(root, out)
    assert summary(again)["skipped"] and rows(again.stdout) == table
    assert summary(again)["warnings"] == summary(result)["warnings"]


@pytest.mark.parametrize(
    ("asked", "kept", "reason"),
    [
        ("instances", ["masks"], "frames without instanceIds"),
        ("polygons", ["polygons"], "frames without polygons"),
        ("auto", ["masks", "polygons"], None),
    ],
)
def test_data_tree_only_the_truth_that_is_asked_for(
    tmp_path: Path, asked: str, kept: list[str], reason: str | None
) -> None:
    frame(tmp_path / "source", "masks").write(CAR, ["instanceIds"])
    frame(tmp_path / "source", "polygons").write(CAR, ["polygons"])
    result = convert(tmp_path / "source", tmp_path / "out", "--truth", asked)
    assert file_names(tmp_path / "out") == [f"ulm/{name}" for name in kept]
    assert reason is None or rows(result.stdout)[f"left out: {reason}"][0] == [1, 0]


def coarse_tree(root: Path) -> None:
    """Fine: fine and both. Coarse: both, coarse, extra, and one of val. `both` has other objects in each."""
    frame(root, "fine").write(CAR)
    frame(root, "both").write(PERSON, part_of := ["instanceIds", "polygons"])
    frame(root, "both", part="gtCoarse").write(CAR, part_of)
    frame(root, "coarse", part="gtCoarse").write(CAR + PERSON, part_of)
    frame(root, "extra", split="train_extra", city="augsburg", part="gtCoarse").write(PERSON, ["polygons"])
    frame(root, "more", split="train_extra", part="gtCoarse").write(PERSON, ["instanceIds"])
    frame(root, "fine_val", split="val").write(CAR)
    frame(root, "coarse_val", split="val", part="gtCoarse").write(PERSON)


def categories(out: Path, split: str = "train") -> dict[str, list[int]]:
    document = json.loads((out / "annotations" / f"instances_{split}2017.json").read_text())
    held = {image["id"]: [] for image in document["images"]}
    for annotation in document["annotations"]:
        held[annotation["image_id"]].append(annotation["category_id"])
    return dict(zip(file_names(out, split), held.values(), strict=True))


def test_data_tree_coarse_is_left_out_unless_asked_for(tmp_path: Path) -> None:
    coarse_tree(tmp_path / "source")
    result = convert(tmp_path / "source", tmp_path / "out")
    assert categories(tmp_path / "out") == {"ulm/both": [24], "ulm/fine": [26]}
    assert categories(tmp_path / "out", "val") == {"ulm/fine_val": [26]}
    assert (
        "not read: 2 frames of train_extra, which have coarse ground truth only (--coarse), the first" in result.stdout
    )
    assert rows(result.stdout)["left out: frames without ground truth"][0] == [1, 1]


def test_data_tree_coarse_grows_the_training_split(tmp_path: Path) -> None:
    root, out = tmp_path / "source", tmp_path / "out"
    coarse_tree(root)
    result = convert(root, out, "--coarse")
    expected = {"augsburg/extra": [24], "ulm/both": [24], "ulm/coarse": [24, 26], "ulm/fine": [26], "ulm/more": [24]}
    assert categories(out) == expected
    assert categories(out, "val") == {"ulm/coarse_val": [24], "ulm/fine_val": [26]}
    table = rows(result.stdout)
    assert (table["frames read"][0], table["coarse"][0]) == ([5, 2], [3, 1])
    assert (out / "train2017" / "augsburg" / "extra_leftImg8bit.png").is_file() and "not read" not in result.stdout

    (root / "leftImg8bit_trainextra" / "leftImg8bit").mkdir(parents=True)
    (root / "leftImg8bit" / "train_extra").rename(root / "leftImg8bit_trainextra" / "leftImg8bit" / "train_extra")
    for part in ("leftImg8bit", "gtFine", "gtCoarse"):
        (root / f"{part}_trainvaltest").mkdir()
        (root / part).rename(root / f"{part}_trainvaltest" / part)
    convert(root, tmp_path / "nested", "--coarse")
    assert {**tree(tmp_path / "nested"), "manifest.json": ""} == {**tree(out), "manifest.json": ""}


def test_data_tree_of_coarse_only(tmp_path: Path) -> None:
    root = tmp_path / "source"
    frame(root, "coarse", part="gtCoarse").write(CAR)
    result = convert(root, tmp_path / "out", check=False)
    assert result.returncode == 2 and "but gtCoarse; give --coarse to use that" in result.stderr
    convert(root, tmp_path / "out", "--coarse")
    assert categories(tmp_path / "out") == {"ulm/coarse": [26]}
    (root / "gtCoarse").rename(root / "gtFine")
    result = convert(root, tmp_path / "out", "--coarse", check=False)
    assert result.returncode == 2 and "holds neither gtCoarse nor" in result.stderr


def test_data_tree_other_settings_are_converted_anew(tmp_path: Path) -> None:
    root, out = tmp_path / "source", tmp_path / "out"
    frame(root, "one").write(NASTY["with_holes"])
    sizes = []
    for options in ([], ["--segmentation", "polygons"], ["--segmentation", "none"], []):
        result = convert(root, out, *options)
        assert not summary(result)["skipped"]
        assert summary(convert(root, out, *options))["skipped"]
        sizes.append((out / "annotations" / "instances_train2017.json").stat().st_size)
    assert sizes[0] == sizes[3] and sizes[2] < min(sizes[:2])


def test_data_tree_linked_folders(tmp_path: Path) -> None:
    root = tmp_path / "elsewhere"
    frame(root, "one").write(CAR)
    frame(root, "two", split="val").write(CAR)
    convert(root, tmp_path / "plain")
    linked = tmp_path / "linked"
    for part in ("leftImg8bit", "gtFine"):
        (linked / part / "train").mkdir(parents=True)
        (linked / part / "train" / "ulm").symlink_to(root / part / "train" / "ulm")
        (linked / part / "val").symlink_to(root / part / "val")
    convert(linked, tmp_path / "out")
    assert {**tree(tmp_path / "out"), "manifest.json": ""} == {**tree(tmp_path / "plain"), "manifest.json": ""}


@pytest.mark.parametrize("spoil", ["no splits", "empty cities", "test only", "only other files"])
def test_data_tree_without_frames_is_an_error(tmp_path: Path, spoil: str) -> None:
    root = tmp_path / "source"
    for part in ("leftImg8bit", "gtFine"):
        (root / part).mkdir(parents=True)
        if spoil != "no splits":
            (root / part / "train" / "ulm").mkdir(parents=True)
    if spoil == "test only":
        frame(root, "one", split="test").write(CAR)
    if spoil == "only other files":
        (root / "leftImg8bit" / "train" / "ulm" / "picture.jpg").touch()
    result = convert(root, tmp_path / "out", check=False)
    assert result.returncode == 2 and len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith(
        f"error: {root}: no frame of train has both a picture and ground truth; train: no frames"
    )
    assert not (tmp_path / "out").exists()


NOT_UTF8 = os.fsdecode(b"bad\xff")


def test_data_tree_names_that_are_not_utf8_are_left_out(tmp_path: Path) -> None:
    root = tmp_path / "source"
    frame(root, "good").write(CAR, ["instanceIds"])
    bad = frame(root, NOT_UTF8).write(CAR, ["instanceIds"])
    frame(root, "one", "val", NOT_UTF8).write(CAR, ["instanceIds"])
    (bad.image.parent / NOT_UTF8).touch()
    result = convert(root, tmp_path / "out")
    assert file_names(tmp_path / "out") == ["ulm/good"]
    table = rows(result.stdout)
    name = str(bad.image).replace(NOT_UTF8, r"bad\udcff")
    assert table["left out: names that are not UTF-8"] == ([1, 1], name)
    assert table["left out: other files"][1].endswith(r"ulm/bad\udcff")
    assert f"train: 1 names that are not UTF-8 left out, the first {name}" in summary(result)["warnings"]
    assert summary(convert(root, tmp_path / "out"))["skipped"]


def test_data_tree_line_breaks_in_names_leave_the_table_whole(tmp_path: Path) -> None:
    root = tmp_path / "source"
    frame(root, "good").write(CAR, ["instanceIds"])
    broken = frame(root, "one", city="new\nulm").write(CAR, ["instanceIds"])
    broken.image.write_bytes(b"")
    other = broken.image.with_name("other\n.png")
    other.touch()
    table = rows(convert(root, tmp_path / "out").stdout)
    assert table["left out: other files"] == ([1, 0], str(other).replace("\n", r"\n"))
    picture = str(broken.image).replace("\n", r"\n")
    assert table["left out: frames whose picture cannot be read"][1].startswith(f"{picture}: not a PNG")


@pytest.mark.parametrize(("folder", "name"), [("source", "straße"), ("straße", "one")])
def test_data_tree_of_names_beyond_ascii_needs_a_locale_of_utf8(
    tmp_path: Path, folder: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, out = tmp_path / folder, tmp_path / "ausgänge"
    frame(root, name).write(CAR, ["instanceIds"])
    for variable, value in (("LC_ALL", "C"), ("PYTHONUTF8", "0"), ("PYTHONCOERCECLOCALE", "0")):
        monkeypatch.setenv(variable, value)
    result = convert(root, out, check=False)
    (line,) = result.stderr.splitlines()
    assert result.returncode == 2 and line.startswith(f"error: {tmp_path}/")
    assert line.endswith(": a name beyond ASCII, and this locale is not one of UTF-8; set LC_ALL=C.UTF-8")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert summary(convert(root, out))["images"] == 1
