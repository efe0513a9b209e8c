"""The files of an index: one per array, and meta.json, written last, which says of which annotation file they are."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType

import numpy as np

from training.data.indexing.arrays import ArrayWriter, map_array
from training.data.indexing.index_build import Index
from training.wire.schema import read_json, write_json

_VERSION = 1  # one more whenever the same annotation file gives another index
_META = "meta.json"
_ARRAYS = {
    "image_ids": np.int64,
    "name_offsets": np.int64,
    "names": np.uint8,
    "box_offsets": np.int64,
    "boxes": np.float32,
    "labels": np.int32,
}
_COLUMNS = {"boxes": (4,)}
# The date of meta.json is the annotation file's less this: it travels with a copy that keeps dates, no other copy has it
# by chance, and the same annotations give the same bytes whenever they are converted.
_DATED_BACK_NS = 86_400 * 10**9


@dataclass(frozen=True)
class _Meta:
    """What meta.json holds. `json_bytes` and `json_sha256` are of the annotation file."""

    version: int
    json_bytes: int
    json_sha256: str
    classes: list[str]
    category_ids: list[int]


@dataclass(frozen=True)
class StoredIndex:
    """An index and the size, date and digest of the annotation file that it was made from."""

    index: Index
    bytes: int
    mtime_ns: int
    sha256: str


class IndexWriter:
    """Writes the index of an annotation file from the indexes of its parts, in their order; memory holds one at a time.

    `folder` is new or empty. A context manager, in whose block `finish` is called. Raises OSError where it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder
        self._arrays: dict[str, ArrayWriter] = {}
        with ExitStack() as stack:
            for name, kind in _ARRAYS.items():
                writer = ArrayWriter(folder / f"{name}.npy", kind, _COLUMNS.get(name, ()))
                self._arrays[name] = stack.enter_context(writer)
            self._stack = stack.pop_all()
        self._kind: tuple[list[str], list[int]] | None = None
        self._names_without_box: list[bytes] = []
        self._arrays["name_offsets"].append(np.zeros(1))
        self._arrays["box_offsets"].append(np.zeros(1))

    def __enter__(self) -> IndexWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def append(self, part: Index) -> None:
        """Adds an index of more images of the same categories."""
        self._kind = self._kind or (part.classes, part.category_ids)
        images = len(part.image_ids)
        self._append_names(part.name_offsets[: images + 1], part.names)
        self._arrays["box_offsets"].append(self._arrays["boxes"].rows + part.box_offsets[1:])
        for name in ("image_ids", "boxes", "labels"):
            self._arrays[name].append(getattr(part, name))
        without = part.name_offsets[images:]
        self._names_without_box += [part.names[first:end].tobytes() for first, end in pairwise(without.tolist())]

    def finish(self, json_bytes: int, json_sha256: str, json_mtime_ns: int) -> None:
        """Makes the index whole, which is then of an annotation file of this size, digest and date."""
        for name in self._names_without_box:
            self._append_names(np.array([0, len(name)]), np.frombuffer(name, np.uint8))
        self._stack.close()
        classes, category_ids = self._kind or ([], [])
        write_json(self._folder / _META, _Meta(_VERSION, json_bytes, json_sha256, classes, category_ids))
        dated_ns = json_mtime_ns - _DATED_BACK_NS
        with suppress(OSError):  # a file system that cannot: the digest decides
            os.utime(self._folder / _META, ns=(dated_ns, dated_ns))

    def _append_names(self, offsets: np.ndarray, names: np.ndarray) -> None:
        """Adds names that begin and end at `offsets` of `names`, from 0 on."""
        self._arrays["name_offsets"].append(self._arrays["names"].rows + offsets[1:])
        self._arrays["names"].append(names[: offsets[-1]])


def load_index(folder: Path) -> StoredIndex | None:
    """The index in a folder, or None where none is that is whole and of this version."""
    try:
        meta = read_json(_Meta, folder / _META)
        dated_ns = (folder / _META).stat().st_mtime_ns
        arrays = {name: map_array(folder / f"{name}.npy") for name in _ARRAYS}
    except Exception:  # numpy's reader meets damage with many kinds of error, and all mean the same
        return None
    index = Index(meta.classes, meta.category_ids, **arrays)
    if meta.version != _VERSION or not _is_sound(index):
        return None
    return StoredIndex(index, meta.json_bytes, dated_ns + _DATED_BACK_NS, meta.json_sha256)


def _is_sound(index: Index) -> bool:
    """Whether all arrays are there with the types and shapes that belong together."""
    for name, kind in _ARRAYS.items():
        array = getattr(index, name)
        if array is None or array.ndim == 0 or array.shape[1:] != _COLUMNS.get(name, ()):
            return False
        if array.dtype != kind or not array.flags.c_contiguous:
            return False
    images, boxes = len(index.image_ids), len(index.boxes)
    return (
        0 < len(index.classes) == len(index.category_ids)
        and len(index.labels) == boxes
        and len(index.box_offsets) == images + 1
        and len(index.name_offsets) > images > 0
        and _parts(index.box_offsets, boxes)
        and _parts(index.name_offsets, len(index.names))
    )


def _parts(offsets: np.ndarray, total: int) -> bool:
    return offsets[0] == 0 and offsets[-1] == total and bool((offsets[1:] > offsets[:-1]).all())
