"""Reads the folder layout of Cityscapes: splits, cities, frames and their ground truth.

`leftImg8bit/<split>/<city>/<name>_leftImg8bit.png`, `gtFine/<split>/<city>/<name>_gtFine_{instanceIds.png,labelIds.png,
polygons.json}` and the like in `gtCoarse` (README of cityscapesScripts), in one folder or, as the reference
segmentation program wants them, in `leftImg8bit_trainvaltest/`, `gtFine_trainvaltest/`, `leftImg8bit_trainextra/` and
`gtCoarse/` below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from training.data.errors import DataError
from training.data.names import is_utf8

SPLITS = ("train", "val")
EXTRA = "train_extra"  # 20,000 frames with coarse ground truth only
IMAGES = "leftImg8bit"
FINE, COARSE = "gtFine", "gtCoarse"
INSTANCES, POLYGONS = "instances", "polygons"
AUTO = "auto"  # instances where they are, else polygons
LABELS = "labels"  # label ids where they are, else polygons

NO_TRUTH = "frames without ground truth"
OTHER_TRUTH = {
    AUTO: "frames with neither instanceIds nor polygons",
    INSTANCES: "frames without instanceIds",
    POLYGONS: "frames without polygons",
    LABELS: "frames with neither labelIds nor polygons",
}
NO_IMAGE = "ground truths without a frame"
TWICE = "second files of the same frame"
NOT_UTF8 = "names that are not UTF-8"
NO_FILE = "links that lead to no file"
NOT_OURS = "other files"

_PNG = re.compile(r"(?P<name>[^.].*)_leftImg8bit\.(?i:png)")
_PNG_OR_JPEG = re.compile(r"(?P<name>[^.].*)_leftImg8bit\.(?i:png|jpe?g)")
_TRUTH = re.compile(r"(?P<name>[^.].*)_(?P<part>gtFine|gtCoarse)_(?P<kind>\w+)\.(?i:png|json)")
_LABEL_IDS = "labelIds"
_KINDS = {"instanceIds": INSTANCES, "polygons": POLYGONS}
_WANTED = {
    AUTO: (INSTANCES, POLYGONS),
    INSTANCES: (INSTANCES,),
    POLYGONS: (POLYGONS,),
    LABELS: (_LABEL_IDS, POLYGONS),
}


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame and the file that its ground truth is read from, by their names in the folders of a city."""

    images: Path
    image_name: str
    truths: Path
    truth_name: str

    @property
    def city(self) -> str:
        return self.images.name

    @property
    def name(self) -> str:
        """`aachen_000000_000019`."""
        return self.image_name[: self.image_name.rindex("_")]

    @property
    def file_name(self) -> str:
        """The frame's path inside its split: `aachen/aachen_000000_000019_leftImg8bit.png`, in lower case from the dot on."""
        return f"{self.city}/{self.name}_leftImg8bit{Path(self.image_name).suffix.lower()}"

    @property
    def image(self) -> Path:
        return self.images / self.image_name

    @property
    def truth(self) -> Path:
        return self.truths / self.truth_name

    @property
    def has_polygons(self) -> bool:
        """Whether `truth` is polygons, and not an image."""
        return self.truth_name.lower().endswith(".json")

    @property
    def is_coarse(self) -> bool:
        return _part_of(self.truths) == COARSE

    def check_truth_size(self, shape: tuple[int, ...], width: int, height: int) -> None:
        """`shape`: of its ground truth, (height, width) px. Raises DataError where its picture has another size."""
        if shape != (height, width):
            raise DataError(
                f"{self.truth}: {shape[1]}x{shape[0]} px, but its frame {self.image} is {width}x{height} px; "
                "both must have the same size"
            )


@dataclass
class Split:
    """The frames of a split, sorted by `file_name`, and the files left out of it, by reason."""

    frames: list[Frame] = field(default_factory=list)
    left_out: dict[str, list[Path]] = field(default_factory=dict)

    def leave_out(self, reason: str, path: Path) -> None:
        self.left_out.setdefault(reason, []).append(path)


def read_splits(root: Path, truth: str = AUTO, coarse: bool = False) -> dict[str, Split]:
    """The splits `train` and `val`; a missing one is empty.

    `truth` is the kind to read; with LABELS pictures may be JPEG too. With `coarse`, frames without fine ground truth have
    the coarse one, and `train` has the frames of `train_extra` too. Raises DataError when `root` is not such a folder.
    """
    if not root.is_dir():
        raise DataError(f"{root}: no such folder; give the folder that holds {IMAGES} and {FINE}")
    images = _required(root, IMAGES, "trainvaltest")
    parts = [_required(root, COARSE, "trainvaltest")] if coarse else []
    fine = _part(root, FINE, "trainvaltest")
    if fine or not coarse:
        parts.insert(0, fine or _required(root, FINE, "trainvaltest"))
    splits = {name: _Reader(truth) for name in SPLITS}
    for name, reader in splits.items():
        reader.read(images / name, [part / name for part in parts])
    if coarse:
        extra_images = _extra_images(root, images) or images / EXTRA
        splits["train"].read(extra_images, [part / EXTRA for part in parts])
    return {name: reader.split() for name, reader in splits.items()}


def unread_frames(root: Path, coarse: bool, how: str = " (--coarse)") -> dict[str, list[Path]]:
    """The pictures below `root` of which `read_splits` reads none, by why. `how` to have those of EXTRA read, if it can be."""
    images = _part(root, IMAGES, "trainvaltest")
    found = {"frames of test, whose ground truth is a dummy": _pictures(images / "test") if images else []}
    if images and not coarse and (extra := _extra_images(root, images)):
        found[f"frames of {EXTRA}, which have coarse ground truth only{how}"] = _pictures(extra)
    return {why: pictures for why, pictures in found.items() if pictures}


class _Reader:
    """Reads the folders that a split consists of."""

    def __init__(self, truth: str) -> None:
        self._kinds = _WANTED[truth]
        self._image = _PNG_OR_JPEG if truth == LABELS else _PNG
        self._other_truth = OTHER_TRUTH[truth]
        self._split = Split()
        self._seen: set[str] = set()

    def split(self) -> Split:
        self._split.frames.sort(key=lambda frame: frame.file_name)
        for paths in self._split.left_out.values():
            paths.sort()
        return self._split

    def read(self, images: Path, truths: list[Path]) -> None:
        """Reads the folders of cities in `images`, with the ground truth of the first of `truths` that has it."""
        for folder in (images, *truths):
            self._leave_out_others(path for path in _entries(folder) if not path.is_dir())
        for city in sorted({path.name for folder in (images, *truths) for path in _entries(folder) if path.is_dir()}):
            if is_utf8(images / city):
                self._read_city(city, images / city, [truth / city for truth in truths])
            else:
                self._split.leave_out(NOT_UTF8, images / city)

    def _read_city(self, city: str, images: Path, truths: list[Path]) -> None:
        found = self._truths(truths)
        for path in _entries(images):
            match = self._image.fullmatch(path.name)
            if not match or not path.is_file():
                self._leave_out_others([path])
                continue
            name = match["name"]
            kinds = found.get(name, {})
            key = f"{city}/{name}"
            chosen = next((where for where in self._wanted(truths) if where in kinds), None)
            if not is_utf8(path):
                self._split.leave_out(NOT_UTF8, path)
            elif key in self._seen:
                self._split.leave_out(TWICE, path)
            elif chosen:
                self._split.frames.append(Frame(images, path.name, chosen[0], kinds[chosen].name))
            else:
                self._split.leave_out(self._other_truth if kinds else NO_TRUTH, path)
            self._seen.add(key)
        for name, kinds in found.items():
            if f"{city}/{name}" not in self._seen:
                self._split.leave_out(NO_IMAGE, next(iter(kinds.values())))

    def _wanted(self, truths: list[Path]) -> Iterable[tuple[Path, str]]:
        return ((folder, kind) for folder in truths for kind in self._kinds)

    def _truths(self, truths: list[Path]) -> dict[str, dict[tuple[Path, str], Path]]:
        """The files of each frame by their folder and kind."""
        found: dict[str, dict[tuple[Path, str], Path]] = {}
        for folder in truths:
            for path in _entries(folder):
                match = _TRUTH.fullmatch(path.name)
                if match and match["part"] == _part_of(folder) and path.is_file():
                    kind = _KINDS.get(match["kind"], match["kind"])
                    found.setdefault(match["name"], {}).setdefault((folder, kind), path)
                else:
                    self._leave_out_others([path])
        return found

    def _leave_out_others(self, paths: Iterable[Path]) -> None:
        for path in paths:
            is_broken = path.is_symlink() and not path.exists()
            self._split.leave_out(NO_FILE if is_broken else NOT_OURS, path)


def _part_of(city: Path) -> str:
    """`gtFine`, of `gtFine/<split>/<city>`."""
    return city.parent.parent.name


def _required(root: Path, name: str, suffix: str) -> Path:
    if part := _part(root, name, suffix):
        return part
    holds = f"{root}: holds neither {name} nor {name}_{suffix}/{name}"
    if name == FINE and _part(root, COARSE, suffix):
        raise DataError(f"{holds}, but {COARSE}; give --coarse to use that")
    raise DataError(f"{holds}; give the folder that holds {IMAGES} and {COARSE if name == COARSE else FINE}")


def _part(root: Path, name: str, suffix: str) -> Path | None:
    candidates = (root / name / name, root / name, root / f"{name}_{suffix}" / name)
    return next((part for part in candidates if part.is_dir()), None)


def _extra_images(root: Path, images: Path) -> Path | None:
    candidates = (images / EXTRA, root / f"{IMAGES}_trainextra" / IMAGES / EXTRA)
    return next((folder for folder in candidates if folder.is_dir()), None)


def _pictures(split: Path) -> list[Path]:
    cities = (city for city in _entries(split) if city.is_dir())
    return [path for city in cities for path in _entries(city) if _PNG_OR_JPEG.fullmatch(path.name)]


def _entries(folder: Path) -> list[Path]:
    """What a folder holds, sorted; nothing where it is none. What begins with a dot is the file system's own."""
    return sorted(path for path in folder.iterdir() if path.name[0] != ".") if folder.is_dir() else []
