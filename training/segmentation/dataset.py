"""The pairs of image and mask that a folder in Cityscapes' layout holds, listed once per node.

`leftImg8bit/<split>/<city>/<name>_leftImg8bit.png` (or .jpg, .jpeg) and `gtFine/<split>/<city>/<name>_gtFine_labelIds.png`,
in one folder or, as the reference program wants them, in `leftImg8bit_trainvaltest/` and `gtFine_trainvaltest/` below it. An
inflated set has many folders `<city>_…` of a city.
"""

from __future__ import annotations

import hashlib
import io
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from training.common.errors import UserError
from training.common.reading import Content, undecodable
from training.data.files import LOOKUPS_AT_ONCE
from training.data.manifest import read_manifest
from training.data.names import MASK_END
from training.segmentation.kept import kept
from training.segmentation.listing import City, Listed, Listing, load_listing, mask_name, write_listing

if TYPE_CHECKING:
    from training.common.gang import Gang

WORKLOAD = "segmentation"

_TAKES = "about 100 bytes an image"
PARTS = ("leftImg8bit", "gtFine")
_ROTATIONS = 3  # --cv 0, 1 and 2
_LOOKUPS_QUEUED = 4096

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class SegmentationSet:
    """Pairs of image and mask, in the order of splits, cities and names, the same on every rank.

    `images` and `masks` are the folders of the splits; `splits` are those that it holds whole, none where `--cv` rotates the
    cities. `place` stands for the set in the node's cache, and `listing.fingerprint` changes when files come or go.
    """

    root: Path
    place: Path
    splits: tuple[str, ...]
    images: Path
    masks: Path
    listing: Listing
    _offsets: np.ndarray = field(repr=False)
    _names: np.ndarray = field(repr=False)

    @classmethod
    def open(cls, root: Path, split: str, cv: int, say: Say, beside: bool = False) -> SegmentationSet:
        """The pairs of `split` (train, val) under `--cv`: 0 is the official split, 1 and 2 rotate the cities as the reference
        program does, 3 trains on train and val together.

        The first process of a node lists the folders, the others map its list; no rank waits for another in a
        collective, and no image is opened. `say` gets a plain line about what takes long or is left out. Raises
        UserError, also where there is no pair at all. `beside` is for preparing: see `kept`.
        """
        splits = _splits(split, cv)
        if not root.is_dir():
            raise UserError(f"there is no folder {root}; it must be the data set's folder on this node")
        images, masks = (_part(root, name) for name in PARTS)
        cities = _city_folders(images, masks, splits) if splits else _rotated(images, masks, split, cv)
        fingerprint = _fingerprint(root, cities)
        place = images / ("+".join(splits) or f"{split}-cv{cv}")

        def load(folder: Path) -> Listed | None:
            found = load_listing(folder)
            return found if found and found[0].fingerprint == fingerprint else None

        def make(folder: Path) -> None:
            say(f"listing {place}, once for this node")
            started_s = time.monotonic()
            listing, pairs = write_listing(folder, fingerprint, cities)
            if not pairs:
                where = "+".join(splits) or "<split>"
                raise UserError(
                    f"{root} has no pair of {images.relative_to(root)}/{where}/<city>/*_leftImg8bit.png (or .jpg) and "
                    f"{masks.relative_to(root)}/{where}/<city>/*{MASK_END}; there are "
                    f"{listing.left_out() or 'neither images nor masks'} in the {len(cities)} cities of {place.name}"
                )
            say(f"listed {pairs} pairs in {time.monotonic() - started_s:.1f} s")

        found = kept("files", root, place, load, make, say, _TAKES, beside)
        if left_out := found[0].left_out():
            say(f"{place}: {left_out} are left out")
        return cls(root, place, splits, images, masks, *found)

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def name(self, index: int) -> str:
        """`train/aachen/aachen_000000_000019_leftImg8bit.png`: an image's path below `images`."""
        return os.fsdecode(self._names[self._offsets[index] : self._offsets[index + 1]].tobytes())

    def image(self, index: int) -> Path:
        return self.images / self.name(index)

    def mask(self, index: int) -> Path:
        return self.masks / mask_name(self.name(index))


def has_split(root: Path, split: str) -> bool:
    """Whether there are folders of that split. Raises UserError where there is no data at all."""
    return all((_part(root, name) / split).is_dir() for name in PARTS)


def total_bytes(data: SegmentationSet, gang: Gang) -> tuple[int, int]:
    """The sizes of all images and of all masks.

    From manifest.json where that is of these splits and of as many images, else each rank looks up its share of the files.
    Raises UserError on every rank if one of them misses a file.
    """
    manifest = read_manifest(data.root, WORKLOAD)
    known = [manifest.splits[split] for split in data.splits if split in manifest.splits] if manifest else []
    if len(known) == len(data.splits) and sum(split.images for split in known) == len(data):
        return sum(split.image_bytes for split in known), sum(split.label_bytes for split in known)
    problem, images, masks = None, 0, 0
    mine = range(gang.rank, len(data), gang.world_size)
    try:
        images, masks = _bytes_of(map(data.image, mine)), _bytes_of(map(data.mask, mine))
    except UserError as error:
        problem = error
    anywhere, _ = gang.agree(problem is not None, 0)
    if anywhere:
        raise problem or UserError("another rank did not find all images and masks")
    return gang.total(images), gang.total(masks)


def decode_mask(content: Content, path: Path) -> np.ndarray:
    """(H, W) uint8 label ids. Raises UserError naming the file."""
    try:
        image = Image.open(io.BytesIO(content))
        if image.mode == "L":
            return np.asarray(image)
    except Exception as error:  # PIL's decoders raise what the damaged bytes lead them to
        raise undecodable(path, error) from error
    raise UserError(f"{path} has no 8-bit grey values (PIL's mode {image.mode}); a mask holds one label id per pixel")


def _splits(split: str, cv: int) -> tuple[str, ...]:
    """The official splits of which the set has all cities; none where they are rotated."""
    if cv in (1, 2):
        return ()
    if cv not in (0, 3):
        raise UserError(
            f"--cv {cv} is no split; 0 is the official one, 1 and 2 validate on other cities, "
            "3 trains on train and val together"
        )
    return ("train", "val") if (split, cv) == ("train", 3) else (split,)


def _part(root: Path, name: str) -> Path:
    for part in (root / name, root / f"{name}_trainvaltest" / name):
        if part.is_dir():
            return part
    raise UserError(
        f"{root} has neither {name} nor {name}_trainvaltest/{name}; it must be the folder that holds leftImg8bit and gtFine"
    )


def _rotated(images: Path, masks: Path, split: str, cv: int) -> list[City]:
    """Of the cities of val and then train, as many as val has are for validation, from `cv` thirds of all cities on.

    The rule of the reference program (its cross-validation splits). Raises UserError where val has no city.
    """
    cities: dict[str, list[City]] = {}
    for folder in _city_folders(images, masks, ("val", "train")):
        cities.setdefault(folder[0].partition("_")[0], []).append(folder)
    count = sum(city.startswith("val/") for city in cities)
    if not count:
        raise UserError(f"--cv {cv} validates on as many cities as {images}/val has, and that has none; give --cv 0")
    first = cv * len(cities) // _ROTATIONS
    names = list(cities)
    validated = names[first : first + count]
    chosen = validated if split == "val" else [city for city in names if city not in validated]
    return [folder for city in chosen for folder in cities[city]]


def _city_folders(images: Path, masks: Path, splits: tuple[str, ...]) -> list[City]:
    cities = []
    for split in splits:
        names = {entry.name for part in (images, masks) for entry in _entries(part / split) if entry.is_dir()}
        cities += [(f"{split}/{name}", images / split / name, masks / split / name) for name in sorted(names)]
    return cities


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return [entry for entry in entries if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"cannot list {folder}: {error.strerror}") from error


def _fingerprint(root: Path, cities: list[City]) -> str:
    """Over the city folders and their dates, which change when a file comes or goes."""
    folders = [folder for _, *pair in cities for folder in pair]
    digest = hashlib.sha256()
    with ThreadPoolExecutor(LOOKUPS_AT_ONCE) as lookups:
        for folder, dated_ns in zip(folders, lookups.map(_dated_ns, folders), strict=True):
            digest.update(f"{folder.relative_to(root).as_posix()}\0{dated_ns}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def _dated_ns(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _bytes_of(paths: Iterable[Path]) -> int:
    def size_bytes(path: Path) -> int:
        try:
            return path.stat().st_size
        except OSError as error:
            raise UserError(f"{path} was listed, but cannot be looked up: {error.strerror}") from error

    left, total = iter(paths), 0
    with ThreadPoolExecutor(LOOKUPS_AT_ONCE) as lookups:
        while some := list(islice(left, _LOOKUPS_QUEUED)):
            total += sum(lookups.map(size_bytes, some))
    return total
