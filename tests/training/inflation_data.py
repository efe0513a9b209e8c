"""Small base sets to inflate, made by hand in Cityscapes' layout and then by the programs that a user runs."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from test_data_programs import tree

from training.data.errors import DataError
from training.data.inflation.coco import CocoLabels
from training.data.inflation.program import run
from training.segmentation.inflated_masks import MaskLabels

TRAINING = Path(__file__).resolve().parents[2] / "training"
PROGRAMS = {"ssd": TRAINING / "ssd" / "inflate.py", "segmentation": TRAINING / "segmentation" / "inflate.py"}
LABELS = {"ssd": CocoLabels, "segmentation": MaskLabels}
WIDTH, HEIGHT = 256, 128
TRAIN = ("aachen_000000_000019", "aachen_000001_000019", "jena_000000_000019")
VAL = ("lindau_000000_000019",)
MEAN_MB = 0.06
ROAD, SKY, CAR, PERSON = 7, 23, 26, 24


def write_cityscapes(root: Path, ending: str = ".png") -> Path:
    """Frames of 256 x 128 px. The last of train has nothing but a person in a corner, whom most variants do not show."""
    for split, frames in (("train", TRAIN), ("val", VAL)):
        for number, name in enumerate(frames):
            city = name.partition("_")[0]
            image, truth = root / "leftImg8bit" / split / city, root / "gtFine" / split / city
            for folder in (image, truth):
                folder.mkdir(parents=True, exist_ok=True)
            ids = _instance_ids(number)
            labels = np.where(ids >= 1000, ids // 1000, ids).astype(np.uint8)
            Image.fromarray(_picture(ids, number)).save(image / f"{name}_leftImg8bit{ending}")
            Image.fromarray(ids.astype(np.uint16)).save(truth / f"{name}_gtFine_instanceIds.png")
            Image.fromarray(labels).save(truth / f"{name}_gtFine_labelIds.png")
    return root


def _instance_ids(number: int) -> np.ndarray:
    ids = np.full((HEIGHT, WIDTH), SKY, np.int32)
    ids[HEIGHT // 2 :] = ROAD
    ids[:6, 250:] = PERSON * 1000 + 1
    if number < len(TRAIN) - 1:
        ids[60:100, 80 + 10 * number : 150 + 10 * number] = CAR * 1000
        ids[50:90, 1:9] = PERSON * 1000
        ids[100:120, 30:60] = PERSON  # a group
    return ids


def _picture(ids: np.ndarray, number: int) -> np.ndarray:
    shades = np.stack([(ids * factor + 40 * number) % 200 for factor in (3, 7, 11)], axis=2)
    return (shades + np.random.default_rng(number).integers(0, 5, shades.shape)).astype(np.uint8)


def make_base(workload: str, root: Path, *more: object, ending: str = ".png") -> Path:
    """The base set of a workload, `root`/base, whose pictures have this ending; its program is given `more`."""
    source = write_cityscapes(root / "cityscapes", ending)
    maker = TRAINING / ("data/convert.py" if workload == "ssd" else "segmentation/prepare.py")
    made = run_program(maker, "--cityscapes", source, "--out", root / "base", *more)
    assert made.returncode == 0, made.stderr
    return root / "base"


def run_program(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, cwd="/", timeout=120, check=False
    )


def arguments(base: Path, out: Path, *more: object) -> list[str]:
    return [str(part) for part in ("--source", base, "--out", out, *more)]


def command(workload: str, base: Path, out: Path, *more: object) -> list[str]:
    return [sys.executable, str(PROGRAMS[workload]), *arguments(base, out, *more)]


@dataclass(frozen=True)
class Inflated:
    """What the program printed, and the object in its last line."""

    lines: list[str]
    summary: dict[str, Any]


def inflate(workload: str, base: Path, out: Path, *more: object, workers: int = 1) -> Inflated:
    """Inflates with the program's own function, in this process: starting it takes longer than the work."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        run(LABELS[workload](), arguments(base, out, "--workers", workers, *more))
    lines = printed.getvalue().splitlines()
    return Inflated(lines, json.loads(lines[-1]))


def refused(workload: str, base: Path, out: Path, *more: object, workers: int = 1) -> str:
    """The one sentence with which inflating is refused or stops."""
    with pytest.raises(DataError) as caught, redirect_stdout(io.StringIO()):
        run(LABELS[workload](), arguments(base, out, "--workers", workers, *more))
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def folders(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir()}


def same(one: Path, other: Path) -> bool:
    """Whether two sets have the same files, byte for byte, in the same folders."""
    return tree(one) == tree(other) and folders(one) == folders(other)
