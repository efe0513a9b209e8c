"""The files that centroids are kept in: arrays, sorted by class, and meta.json, written last, which says of which masks."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from training.data.indexing.arrays import ArrayWriter, map_array, save_array
from training.segmentation.labels import CLASS_NAMES
from training.wire.schema import read_json, write_json

VERSION = 2  # one more whenever the same masks give other centroids
_META = "meta.json"
_CLASSES = len(CLASS_NAMES)
_ARRAYS = {"image": (np.dtype(np.int32), ()), "places": (np.dtype(np.uint16), (2,))}

Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Centroids of some images: (k,) int32 the images, (k,) uint8 the classes, (k, 2) uint16 the places, row and column in px."""

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(classes + 1,) int64 where each class begins and ends, (k,) int32 images, (k, 2) uint16 places."""


@dataclass(frozen=True)
class Meta:
    """`fingerprint` and `names_sha256` are the listing's."""

    version: int
    tile_px: int
    fingerprint: str
    names_sha256: str
    images: int


def write_centroids(folder: Path, meta: Meta, found: Iterable[Found]) -> None:
    """Writes centroids that come in the order of images. They are sorted through a file per class, and never all in memory."""
    counts = np.zeros(_CLASSES, np.int64)
    with ExitStack() as stack:
        parts = {
            name: [stack.enter_context((folder / f".{name}-{number}").open("w+b")) for number in range(_CLASSES)]
            for name in _ARRAYS
        }
        for images, classes, places in found:
            for number in np.unique(classes).tolist():
                here = classes == number
                counts[number] += here.sum()
                for name, array in (("image", images), ("places", places)):
                    parts[name][number].write(array[here].astype(_ARRAYS[name][0]).data)
        for name, (kind, columns) in _ARRAYS.items():
            with ArrayWriter(folder / f"{name}.npy", kind, columns) as writer:
                for count, part in zip(counts.tolist(), parts[name], strict=True):
                    part.seek(0)
                    writer.copy(part, count)
                    Path(part.name).unlink()
    save_array(folder / "class_offsets.npy", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    write_json(folder / _META, meta)


def load_centroids(folder: Path, wanted: Meta, whatever_date: bool) -> Arrays | None:
    """The arrays in a folder, or None where none are that are whole and those wanted.

    With `whatever_date`, the listing's fingerprint does not count: a copy of a data set may have other dates.
    """
    try:
        meta = read_json(Meta, folder / _META)
        if (replace(meta, fingerprint=wanted.fingerprint) if whatever_date else meta) != wanted:
            return None
        offsets, image, places = (map_array(folder / f"{name}.npy") for name in ("class_offsets", *_ARRAYS))
        sound = (
            (offsets.dtype, image.dtype, places.dtype) == (np.int64, *(kind for kind, _ in _ARRAYS.values()))
            and offsets.shape == (_CLASSES + 1,)
            and places.shape == (len(image), 2)
            and offsets[-1] == len(image)
        )
    except Exception:  # numpy's reader meets damage with many kinds of error, and all mean the same
        return None
    return (offsets, image, places) if sound else None
