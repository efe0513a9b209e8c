"""What the converter says to a user's mistake: one sentence, exit status 2, no traceback, nothing left behind."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from city_data import TinyFrame, box
from mounting import MOUNTING, need_mounting
from PIL import Image
from test_data_programs import CONVERT, convert

AACHEN = "aachen_000000_000019"
NaN = float("nan")


@pytest.fixture
def source(scenes: Path, tmp_path: Path) -> Path:
    """One frame of train, to be spoilt."""
    for kind in ("leftImg8bit", "gtFine"):
        shutil.copytree(scenes / kind / "train" / "aachen", tmp_path / "source" / kind / "train" / "aachen")
    return tmp_path / "source"


@pytest.fixture
def picture(source: Path) -> Path:
    return source / "leftImg8bit" / "train" / "aachen" / f"{AACHEN}_leftImg8bit.png"


@pytest.fixture
def truth(source: Path) -> Path:
    return source / "gtFine" / "train" / "aachen" / f"{AACHEN}_gtFine_instanceIds.png"


def refusal(source: Path, out: Path) -> str:
    """The one sentence on stderr."""
    before = sorted(os.listdir(out.parent)) if out.parent.is_dir() else None
    result = convert(source, out, check=False)
    assert result.returncode == 2, result.stdout + result.stderr
    assert before is None or sorted(os.listdir(out.parent)) == before
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: ")
    return line.removeprefix("error: ")


def refusal_of_frame(source: Path, out: Path, reason: str) -> str:
    """The part of the one sentence on stderr that is about the only frame."""
    before, _, sentence = refusal(source, out).partition(", the first ")
    assert before == f"{source}: no frame of train can be used; 1 {reason}"
    return sentence


def deep_png(width: int, height: int) -> bytes:
    """A black picture in RGB of 16 bits a channel, which Pillow cannot write."""
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    pixels = zlib.compress(bytes((6 * width + 1) * height))
    chunks = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


def save(ids: np.ndarray, path: Path) -> None:
    Image.fromarray(ids.astype(np.uint16)).save(path)


def test_data_error_missing_folder(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere"
    assert refusal(missing, tmp_path / "out").startswith(f"{missing}: no such folder; give the folder that holds")


@pytest.mark.parametrize("kind", ["leftImg8bit", "gtFine"])
def test_data_error_missing_part(source: Path, tmp_path: Path, kind: str) -> None:
    shutil.rmtree(source / kind)
    assert f"{source}: holds neither {kind} nor {kind}_trainvaltest/{kind}; give" in refusal(source, tmp_path / "out")


def test_data_error_no_frames(source: Path, picture: Path, tmp_path: Path) -> None:
    picture.unlink()
    sentence = refusal(source, tmp_path / "out")
    assert sentence.startswith(
        f"{source}: no frame of train has both a picture and ground truth; train: 1 ground truths"
    )


def test_data_error_only_label_ids(source: Path, truth: Path, tmp_path: Path) -> None:
    truth.unlink()
    truth.with_name(f"{AACHEN}_gtFine_polygons.json").unlink()
    assert "1 frames with neither instanceIds nor polygons left out" in refusal(source, tmp_path / "out")


def test_data_error_no_objects(source: Path, truth: Path, tmp_path: Path) -> None:
    ids = np.full((1024, 2048), 7)
    ids[:10], ids[20:30, :10] = 26, 29001
    save(ids, truth)
    assert f"{source}: no frame of train has an object to train on" in refusal(source, tmp_path / "out")


@pytest.mark.parametrize("workers", [1, 2])
def test_data_error_picture_that_is_none(source: Path, picture: Path, tmp_path: Path, workers: int) -> None:
    shutil.copytree(source / "gtFine" / "train", source / "gtFine" / "val")
    shutil.copytree(source / "leftImg8bit" / "train", source / "leftImg8bit" / "val")
    picture.write_bytes(b"GIF89a" + bytes(100))
    result = convert(source, tmp_path / "out", workers=workers, check=False)
    assert result.returncode == 2
    assert result.stderr.endswith(f"{picture}: not a PNG; replace it with the frame's picture, or remove it\n")
    assert len(result.stderr.splitlines()) == 1 and not (tmp_path / "out").exists()


def test_data_error_picture_cut_off(source: Path, picture: Path, tmp_path: Path) -> None:
    picture.write_bytes(picture.read_bytes()[:-10_000])
    sentence = refusal_of_frame(source, tmp_path / "out", "frames whose picture cannot be read")
    assert sentence == f"{picture}: a PNG that was cut off; copy it again, or remove it"


def test_data_error_instance_image_cut_off(source: Path, truth: Path, tmp_path: Path) -> None:
    truth.write_bytes(truth.read_bytes()[:2000])
    sentence = refusal_of_frame(source, tmp_path / "out", "frames whose ground truth cannot be read")
    assert sentence == f"{truth}: a PNG that was cut off; copy it again, or remove it"


def test_data_error_instance_image_that_is_none(source: Path, truth: Path, tmp_path: Path) -> None:
    truth.write_bytes(b"GIF89a" + bytes(100))
    sentence = refusal_of_frame(source, tmp_path / "out", "frames whose ground truth cannot be read")
    assert sentence == f"{truth}: not a PNG; replace it with the frame's ground truth, or remove it"


@pytest.mark.parametrize("kind", ["picture", "truth"])
def test_data_error_one_bit_of_the_pixels_flipped(source: Path, tmp_path: Path, kind: str, request: Any) -> None:
    path = request.getfixturevalue(kind)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    what = {"picture": "picture", "truth": "ground truth"}[kind]
    sentence = refusal_of_frame(source, tmp_path / "out", f"frames whose {what} cannot be read")
    damage = "a PNG that was damaged: the CRC of its IDAT chunk does not fit"
    assert sentence == f"{path}: {damage}; copy it again, or remove it"


@pytest.mark.parametrize(("mode", "kind"), [("L", "grey"), ("P", "a palette"), ("RGBA", "RGB with alpha")])
def test_data_error_picture_in_another_colour(
    source: Path, picture: Path, tmp_path: Path, mode: str, kind: str
) -> None:
    with Image.open(picture) as image:
        image.convert(mode).save(picture)
    sentence = refusal_of_frame(source, tmp_path / "out", "frames whose picture cannot be read")
    expected = f"{picture}: a PNG in {kind} of bit depth 8; frames are in RGB of bit depth 8: convert it, or remove it"
    assert sentence == expected


def test_data_error_picture_of_16_bits(source: Path, picture: Path, tmp_path: Path) -> None:
    picture.write_bytes(deep_png(2048, 1024))
    sentence = refusal_of_frame(source, tmp_path / "out", "frames whose picture cannot be read")
    assert sentence.startswith(f"{picture}: a PNG in RGB of bit depth 16; frames are in RGB of bit depth 8: convert it")


def test_data_error_sizes_differ(source: Path, picture: Path, truth: Path, tmp_path: Path) -> None:
    save(np.full((512, 1024), 26000), truth)
    sentence = refusal_of_frame(source, tmp_path / "out", "frames of another size than their ground truth")
    assert sentence.startswith(f"{truth}: 1024x512 px, but its frame {picture} is 2048x1024 px; both must")


@pytest.mark.parametrize(("value", "label"), [(57012, 57), (200, 200)])
def test_data_error_unknown_label_id(source: Path, truth: Path, tmp_path: Path, value: int, label: int) -> None:
    ids = np.full((1024, 2048), 26000)
    ids[3, 4] = value
    save(ids, truth)
    sentence = refusal_of_frame(source, tmp_path / "out", "frames with labels that Cityscapes does not have")
    assert sentence.startswith(f"{truth}: unknown label id {label} (pixel value {value}); Cityscapes has 0 to 33")


@pytest.mark.parametrize(
    ("objects", "what"),
    [
        ([{"label": "spaceship", "polygon": [[0, 0], [9, 0], [9, 9]]}], "unknown label 'spaceship'"),
        ([{"label": "car"}], "not the polygons of a frame (KeyError('polygon'))"),
        ([{"label": "car", "polygon": [[1, 2]]}], "not the polygons of a frame: one of car is no list of corners"),
        ([{"label": "car", "polygon": [[0, 0], [1, NaN]]}], "not the polygons of a frame: one of car is no list of"),
        ([{"label": "car", "polygon": [[0, 0], ["1", 2]]}], "not the polygons of a frame: one of car is no list of"),
        ("cars", "not the polygons of a frame ("),
    ],
)
def test_data_error_polygons(source: Path, truth: Path, tmp_path: Path, objects: list[object], what: str) -> None:
    truth.unlink()
    polygons = truth.with_name(f"{AACHEN}_gtFine_polygons.json")
    polygons.write_text(json.dumps({"imgHeight": 1024, "imgWidth": 2048, "objects": objects}))
    sentence = refusal_of_frame(source, tmp_path / "out", "frames whose ground truth cannot be read")
    assert sentence.startswith(f"{polygons}: {what}")


def test_data_error_out_cannot_be_made(source: Path) -> None:
    assert refusal(source, Path("/proc/nowhere/out")).startswith("/proc/nowhere: cannot be made (No such file or dir")


@pytest.mark.parametrize("name", ["instances.json", "annotations"])
def test_data_error_out_is_somebody_elses(source: Path, tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    (out / name).mkdir(parents=True)
    assert "this program did not write; give another --out, or empty the folder" in refusal(source, out)
    assert (out / name).exists()


def test_data_error_out_has_another_manifest(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out" / "train2017").mkdir(parents=True)
    (tmp_path / "out" / "manifest.json").write_text('{"schema": 1, "workload": "enlarged"}')
    assert "has no manifest.json of this version" in refusal(source, tmp_path / "out")


def test_data_error_out_is_the_source(source: Path, tmp_path: Path) -> None:
    assert f"{source}: would replace its own source" in refusal(source, source)
    assert f"{tmp_path}: would replace its own source" in refusal(source, tmp_path)


@pytest.mark.parametrize("part", ["leftImg8bit/out", "gtFine/train/aachen", "gtCoarse/out", "leftImg8bit_trainextra"])
def test_data_error_out_is_among_the_files_of_the_source(source: Path, part: str) -> None:
    assert refusal(source, source / part) == (
        f"{source / part}: lies among the files of its source {source}; give an --out elsewhere"
    )


def test_data_error_out_is_a_mount_point(source: Path) -> None:
    assert refusal(source, Path("/proc")).startswith("/proc: is a mount point")


def test_data_error_no_room_for_copies(source: Path, picture: Path, other_file_system: Path) -> None:
    os.truncate(picture, 10**13)
    sentence = refusal(source, other_file_system / "out")
    assert " MB free, but the frames to copy take 10000000 MB; make room, or give an --out on" in sentence


def test_data_error_disk_is_full(tmp_path: Path) -> None:
    need_mounting()
    frame = TinyFrame(tmp_path / "source", "train", "ulm", "one").write([box("car", 10, 10, 20, 20)], ["instanceIds"])
    pages = -(-frame.image.stat().st_size // 4096)  # room for the picture, and none for its annotations
    program = shlex.join([sys.executable, str(CONVERT), "--cityscapes", str(frame.root), "--out", "/mnt/out"])
    mount = f"mount -t tmpfs -o size={4 * pages}k none /mnt"
    result = subprocess.run([*MOUNTING, f"{mount} && {program}"], capture_output=True, text=True, check=False)
    assert result.stderr == "error: /mnt/out: No space left on device; make room there, or give another --out\n"
    assert result.returncode == 2


@pytest.mark.parametrize(
    ("redirection", "status", "sentence"),
    [
        ("> /dev/full", 2, "error: standard output: No space left on device; run the same command again with"),
        ("| true", 141, ""),
    ],
)
@pytest.mark.parametrize("skipped", [False, True])
def test_data_error_standard_output_that_takes_nothing(
    source: Path, tmp_path: Path, redirection: str, status: int, sentence: str, skipped: bool
) -> None:
    if skipped:
        convert(source, tmp_path / "out")
    program = shlex.join([sys.executable, str(CONVERT), "--cityscapes", str(source), "--out", str(tmp_path / "out")])
    shell = ["bash", "-c", f"{program} {redirection}; exit ${{PIPESTATUS[0]}}"]
    result = subprocess.run(shell, capture_output=True, text=True, check=False)
    assert result.returncode == status and result.stderr.startswith(sentence)
    assert len(result.stderr.splitlines()) == bool(sentence)
    assert sorted(os.listdir(tmp_path)) == (["out", "source"] if skipped else ["source"])


INTERRUPTED_IMPORT = """
import os, signal, sys
from training.data.errors import exit_status

def program():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()
    except KeyboardInterrupt as error:
        raise ImportError("Error importing numpy") from error

sys.exit(exit_status(program))
"""


def test_data_error_an_import_that_was_interrupted_is_told_as_an_interruption() -> None:
    """numpy makes an ImportError of what it meets while its parts are loaded."""
    command = ["env", "--default-signal=INT", sys.executable, "-c", INTERRUPTED_IMPORT]
    result = subprocess.run(command, cwd=CONVERT.parents[2], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (130, "error: interrupted; run the same command again\n")
