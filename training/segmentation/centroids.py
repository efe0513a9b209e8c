"""Class-uniform sampling: where in the images each class is, and epochs in which every class comes equally often.

The method is that of NVIDIA's semantic-segmentation program (Zhu et al. 2019, "Improving Semantic Segmentation via Video
Propagation and Label Relaxation", section 4.1): part of an epoch's samples are crops around the centroids of a class.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.common.reading import read_file
from training.common.sampler import Draw
from training.data.arrays import map_array, save_array
from training.data.workers import available_cores, map_ordered
from training.segmentation.dataset import Say, SegmentationSet, decode_mask
from training.segmentation.kept import kept
from training.segmentation.labels import CLASS_NAMES, TRAIN_IDS, check_ids
from training.wire.schema import read_json, write_json

_VERSION = 1  # one more whenever the same masks give other centroids
_META = "meta.json"
_TAKES = "about 200 bytes an image"
_CLASSES = len(CLASS_NAMES)
_VALUES = _CLASSES + 1  # the last for what is not learned
_VALUE_OF_ID = np.minimum(TRAIN_IDS, _CLASSES)
_MASKS_PER_TASK = 64
_PROGRESS_INTERVAL_S = 30.0


@dataclass(frozen=True)
class _Meta:
    version: int
    tile_px: int
    fingerprint: str
    images: int


@dataclass(frozen=True, eq=False)
class Centroids:
    """One centroid for each class in each tile of each of `images` images.

    Centroid k is of image `image[k]` and at row and column `places[k]` in px; those of class c are `class_offsets[c]` to
    `class_offsets[c + 1]`. Shapes (20,) int64, (k,) int32, (k, 2) uint16; mapped from files that a node's processes share.

    An epoch's items are codes: i < `images` is image i, cropped anywhere, and `images` + k a crop around centroid k.
    """

    images: int
    class_offsets: np.ndarray
    image: np.ndarray
    places: np.ndarray

    def present(self) -> list[int]:
        """The classes that some image has."""
        return np.flatnonzero(np.diff(self.class_offsets)).tolist()

    def draw(self, class_uniform_pct: float) -> Draw:
        """Orders of `images` codes for Sampler, in which that part (0 to 1) comes from the classes, each equally often.

        The other part are different images. Centroids of a class repeat only where an epoch needs more than it has. A
        class that occurs nowhere is left out; where the part does not divide evenly, chance gives the rest away.
        """
        classes = self.present()
        around = round(self.images * class_uniform_pct) if classes else 0

        def order(random: np.random.Generator, _: int) -> NDArray[np.int64]:
            counts = np.full(len(classes), around // max(len(classes), 1))
            counts[random.permutation(len(classes))[: around - counts.sum()]] += 1
            parts = [random.permutation(self.images)[: self.images - around]]
            for number, count in zip(classes, counts.tolist(), strict=True):
                first, end = self.class_offsets[number : number + 2].tolist()
                parts.append(self.images + first + _drawn(random, end - first, count))
            return random.permutation(np.concatenate(parts))

        return order

    def locate(self, codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.bool_]]:
        """Of codes of any shape: the images, the points (…, 2) in px, row first, and whether there is a point."""
        has_point = codes >= self.images
        images, points = codes.copy(), np.zeros((*codes.shape, 2))
        centroids = codes[has_point] - self.images
        images[has_point], points[has_point] = self.image[centroids], self.places[centroids]
        return images, points, has_point


def open_centroids(data: SegmentationSet, tile_px: int, say: Say, beside: bool = False) -> Centroids:
    """The centroids of a set in square tiles of `tile_px`, from where they are kept; one process of the node makes them.

    Every mask is read and checked for that. No rank waits for another in a collective: the others wait for a lock that
    dies with its holder, and what a killed one began is not taken for whole. Files that come or go make them anew; a
    mask rewritten in place does not. Raises UserError naming a mask that cannot be used.
    """
    wanted = _Meta(_VERSION, tile_px, data.listing.fingerprint, len(data))

    def make(folder: Path) -> None:
        workers = available_cores()
        say(f"reading {len(data)} masks for class-uniform sampling with {workers} processes, once for this node")
        started_s = time.monotonic()
        _write(folder, wanted, _found(data, tile_px, workers, say))
        found = _load(folder, wanted)
        absent = [name for number, name in enumerate(CLASS_NAMES) if found and number not in found.present()]
        nowhere = f"; no pixel of {', '.join(absent)}" if absent else ""
        say(f"found {len(found.image) if found else 0} centroids in {time.monotonic() - started_s:.1f} s{nowhere}")

    return kept(
        f"centroids-{tile_px}",
        data.root,
        data.place,
        lambda folder: _load(folder, wanted),
        make,
        say,
        _TAKES,
        beside,
    )


def mask_centroids(ids: np.ndarray, tile_px: int) -> tuple[np.ndarray, np.ndarray]:
    """Of a mask (H, W) of label ids: for each tile and each class in it, the class (k,) uint8 and its centroid (k, 2) uint16.

    Tiles are squares from the upper left corner on, cut off at the right and the lower edge.
    """
    classes, places = [], []
    values = _VALUE_OF_ID[ids]
    for top in range(0, ids.shape[0], tile_px):
        for left in range(0, ids.shape[1], tile_px):
            tile = values[top : top + tile_px, left : left + tile_px]
            rows, columns = _histogram(tile), _histogram(tile.T)
            counts = rows.sum(axis=0)
            here = np.flatnonzero(counts)
            centres = [(np.arange(len(part)) @ part)[here] // counts[here] for part in (rows, columns)]
            classes.append(here.astype(np.uint8))
            places.append((np.stack(centres, axis=1) + np.array([top, left])).astype(np.uint16))
    return np.concatenate(classes), np.concatenate(places)


def _histogram(tile: np.ndarray) -> np.ndarray:
    """(rows, classes): how many pixels of each class each row of a tile has."""
    keys = tile + np.arange(len(tile))[:, None] * _VALUES
    return np.bincount(keys.ravel(), minlength=len(tile) * _VALUES).reshape(len(tile), _VALUES)[:, :_CLASSES]


def _drawn(random: np.random.Generator, choices: int, count: int) -> NDArray[np.int64]:
    """`count` of 0 … `choices` - 1, each as often as any other or once more."""
    whole, rest = divmod(count, choices)
    return np.concatenate([np.tile(np.arange(choices), whole), random.choice(choices, rest, replace=False)])


@dataclass(frozen=True)
class _Task:
    first_image: int
    masks: list[str]


_Found = tuple[np.ndarray, np.ndarray, np.ndarray]  # images, classes, places


def _found(data: SegmentationSet, tile_px: int, workers: int, say: Say) -> Iterator[_Found]:
    firsts = range(0, len(data), _MASKS_PER_TASK)
    tasks = [
        _Task(first, [str(data.mask(index)) for index in range(first, min(first + _MASKS_PER_TASK, len(data)))])
        for first in firsts
    ]
    told_s = time.monotonic()
    for task, found in zip(tasks, map_ordered(partial(_work, tile_px), tasks, workers), strict=True):
        if time.monotonic() - told_s > _PROGRESS_INTERVAL_S:
            told_s = time.monotonic()
            say(f"{task.first_image + len(task.masks)} of {len(data)} masks")
        yield found


def _work(tile_px: int, task: _Task) -> _Found:
    images, classes, places = [], [], []
    for offset, mask in enumerate(task.masks):
        path = Path(mask)
        ids = decode_mask(read_file(path), path)
        check_ids(np.flatnonzero(np.bincount(ids.ravel(), minlength=256)), mask)
        found = mask_centroids(ids, tile_px)
        images.append(np.full(len(found[0]), task.first_image + offset, dtype=np.int32))
        classes.append(found[0])
        places.append(found[1])
    return np.concatenate(images), np.concatenate(classes), np.concatenate(places)


def _write(folder: Path, meta: _Meta, found: Iterator[_Found]) -> None:
    images, classes, places = map(np.concatenate, zip(*found, strict=True))
    order = np.argsort(classes, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(classes, minlength=_CLASSES))]).astype(np.int64)
    save_array(folder / "class_offsets.npy", offsets)
    save_array(folder / "image.npy", images[order])
    save_array(folder / "places.npy", places[order])
    write_json(folder / _META, meta)


def _load(folder: Path, wanted: _Meta) -> Centroids | None:
    """The centroids in a folder, or None where none are that are whole and those wanted."""
    try:
        if read_json(_Meta, folder / _META) != wanted:
            return None
        offsets, image, places = (map_array(folder / f"{name}.npy") for name in ("class_offsets", "image", "places"))
        sound = (
            (offsets.dtype, image.dtype, places.dtype) == (np.int64, np.int32, np.uint16)
            and offsets.shape == (_CLASSES + 1,)
            and places.shape == (len(image), 2)
            and offsets[-1] == len(image)
        )
    except Exception:  # numpy's reader meets damage with many kinds of error, and all mean the same
        return None
    return Centroids(wanted.images, offsets, image, places) if sound else None
