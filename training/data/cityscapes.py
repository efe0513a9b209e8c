"""Reads the folder layout of Cityscapes: splits, cities, frames and their ground truth.

`leftImg8bit/<split>/<city>/<name>_leftImg8bit.png` and `gtFine/<split>/<city>/<name>_gtFine_{instanceIds.png,
labelIds.png,polygons.json}` (README of cityscapesScripts), in one folder or, as the reference segmentation program
wants them, in `leftImg8bit_trainvaltest/` and `gtFine_trainvaltest/` below it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from training.data.errors import DataError

SPLITS = ("train", "val")

_IMAGE = re.compile(r"(?P<name>[^.].*)_leftImg8bit\.(?i:png)")
_TRUTH = re.compile(r"(?P<name>[^.].*)_gtFine_(?P<kind>instanceIds\.(?i:png)|labelIds\.(?i:png)|polygons\.(?i:json))")

NO_TRUTH = "frames without ground truth"
ONLY_LABELS = "frames with neither instanceIds nor polygons"
NO_IMAGE = "ground truths without a frame"
TWICE = "second files of the same frame"


@dataclass(frozen=True)
class Frame:
    """A frame and the file that its instances are read from: `*_instanceIds.png`, else `*_polygons.json`."""

    city: str
    name: str
    image: Path
    truth: Path

    @property
    def file_name(self) -> str:
        """The frame's path inside its split: `aachen/aachen_000000_000019_leftImg8bit.png`."""
        return f"{self.city}/{self.name}_leftImg8bit.png"


@dataclass
class Split:
    """The frames of a split, sorted by `file_name`, and the files left out of it, by reason."""

    frames: list[Frame] = field(default_factory=list)
    left_out: dict[str, list[Path]] = field(default_factory=dict)

    def leave_out(self, reason: str, path: Path) -> None:
        self.left_out.setdefault(reason, []).append(path)


def read_splits(root: Path) -> dict[str, Split]:
    """The splits `train` and `val`; a missing one is empty. Raises DataError when `root` is not such a folder."""
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; give the folder that holds leftImg8bit and gtFine")
    images, truths = _part(root, "leftImg8bit"), _part(root, "gtFine")
    return {split: _read_split(images / split, truths / split) for split in SPLITS}


def _part(root: Path, name: str) -> Path:
    for part in (root / name, root / f"{name}_trainvaltest" / name):
        if part.is_dir():
            return part
    raise DataError(
        f"{root}: holds neither {name} nor {name}_trainvaltest/{name}; "
        "give the folder that holds leftImg8bit and gtFine"
    )


def _read_split(images: Path, truths: Path) -> Split:
    split = Split()
    for city in sorted(_folders(images) | _folders(truths)):
        _read_city(split, city, images / city, truths / city)
    split.frames.sort(key=lambda frame: frame.file_name)
    return split


def _read_city(split: Split, city: str, images: Path, truths: Path) -> None:
    truth_of: dict[str, dict[str, Path]] = {}
    for path in _files(truths):
        if match := _TRUTH.fullmatch(path.name):
            truth_of.setdefault(match["name"], {}).setdefault(match["kind"].split(".")[0], path)
    seen = set()
    for path in _files(images):
        match = _IMAGE.fullmatch(path.name)
        if not match:
            continue
        name = match["name"]
        files = truth_of.get(name, {})
        truth = files.get("instanceIds") or files.get("polygons")
        if name in seen:
            split.leave_out(TWICE, path)
        elif truth:
            split.frames.append(Frame(city, name, path, truth))
        else:
            split.leave_out(ONLY_LABELS if files else NO_TRUTH, path)
        seen.add(name)
    for name, files in truth_of.items():
        if name not in seen:
            split.leave_out(NO_IMAGE, next(iter(files.values())))


def _folders(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []
