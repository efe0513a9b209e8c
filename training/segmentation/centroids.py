"""Class-uniform sampling: where in the images each class is, and epochs in which every class comes equally often.

The method is that of NVIDIA's semantic-segmentation program (Zhu et al. 2019, "Improving Semantic Segmentation via Video
Propagation and Label Relaxation", section 4.1): part of an epoch's samples are crops around the centroids of a class.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.common.reading import read_file
from training.common.sampler import Draw
from training.data.workers import available_cores, map_ordered
from training.segmentation.centroid_files import VERSION, Found, Meta, load_centroids, write_centroids
from training.segmentation.dataset import Say, SegmentationSet, decode_mask
from training.segmentation.kept import INDEX_FOLDER, kept
from training.segmentation.labels import CLASS_NAMES, TRAIN_IDS, check_ids

_TAKES = "about 200 bytes an image"
_CLASSES = len(CLASS_NAMES)
_VALUES = _CLASSES + 1  # the last for what is not learned
_VALUE_OF_ID = np.minimum(TRAIN_IDS, _CLASSES)
_MASKS_PER_TASK = 64
_PROGRESS_INTERVAL_S = 30.0


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


def open_centroids(
    data: SegmentationSet,
    tile_px: int,
    say: Say,
    beside: bool = False,
    known: Callable[[], Iterator[Found]] | None = None,
) -> Centroids:
    """The centroids of a set in square tiles of `tile_px`, from where they are kept; one process of the node makes them.

    Every mask is read and checked for that. No rank waits for another in a collective: the others wait for a lock that
    dies with its holder, and what a killed one began is not taken for whole. Files that come or go make them anew; a
    mask rewritten in place does not. `known` gives them, in the order of images, where masks need not be read. Raises
    UserError naming a mask that cannot be used.
    """
    wanted = Meta(VERSION, tile_px, data.listing.fingerprint, data.listing.names_sha256, len(data))

    def load(folder: Path) -> Centroids | None:
        arrays = load_centroids(folder, wanted, whatever_date=folder.parent == data.root / INDEX_FOLDER)
        return Centroids(wanted.images, *arrays) if arrays else None

    def make(folder: Path) -> None:
        if known is not None:
            return write_centroids(folder, wanted, known())
        workers = available_cores()
        say(f"reading {len(data)} masks for class-uniform sampling with {workers} processes, once for this node")
        started_s = time.monotonic()
        write_centroids(folder, wanted, _found(data, tile_px, workers, say))
        found = load(folder)
        absent = [name for number, name in enumerate(CLASS_NAMES) if found and number not in found.present()]
        nowhere = f"; no pixel of {', '.join(absent)}" if absent else ""
        say(f"found {len(found.image) if found else 0} centroids in {time.monotonic() - started_s:.1f} s{nowhere}")
        return None

    return kept(f"centroids-{tile_px}", data.root, data.place, load, make, say, _TAKES, beside)


def mask_centroids(ids: np.ndarray, tile_px: int) -> tuple[np.ndarray, np.ndarray]:
    """Of a mask (H, W) of label ids: for each tile and each class in it, the class (k,) uint8 and its centroid (k, 2) uint16.

    Tiles are squares from the upper left corner on, cut off at the right and the lower edge. Counted are runs of equal
    labels in the rows of tiles, which are many fewer than pixels.
    """
    height, width = ids.shape
    begins = np.ones((height, width), np.bool_)
    np.not_equal(ids[:, 1:], ids[:, :-1], out=begins[:, 1:])
    begins[:, ::tile_px] = True
    starts = np.flatnonzero(begins)
    lengths = np.diff(starts, append=ids.size)
    rows, columns = np.divmod(starts, width)
    tiles = rows // tile_px * -(-width // tile_px) + columns // tile_px
    keys = tiles * _VALUES + _VALUE_OF_ID[ids.ravel()[starts]]

    def total(of_runs: np.ndarray) -> np.ndarray:
        """(tiles, classes): whole numbers far below 2^53, which float64 holds."""
        sums = np.bincount(keys, of_runs, minlength=_VALUES * (1 + tiles[-1]))
        return sums.reshape(-1, _VALUES)[:, :_CLASSES].astype(np.int64)

    counts = total(lengths)
    here = np.nonzero(counts)
    sums = total(rows * lengths), total(columns * lengths + lengths * (lengths - 1) // 2)
    places = np.stack([part[here] // counts[here] for part in sums], axis=1)
    return here[1].astype(np.uint8), places.astype(np.uint16)


def _drawn(random: np.random.Generator, choices: int, count: int) -> NDArray[np.int64]:
    """`count` of 0 … `choices` - 1, each as often as any other or once more."""
    whole, rest = divmod(count, choices)
    return np.concatenate([np.tile(np.arange(choices), whole), random.choice(choices, rest, replace=False)])


@dataclass(frozen=True)
class _Task:
    first_image: int
    masks: list[str]


def _found(data: SegmentationSet, tile_px: int, workers: int, say: Say) -> Iterator[Found]:
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


def _work(tile_px: int, task: _Task) -> Found:
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
