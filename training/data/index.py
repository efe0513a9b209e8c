"""The index of a COCO annotation file: its boxes as arrays in a folder, which any number of processes map at once."""

from __future__ import annotations

import os
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.data.arrays import map_array, save_array
from training.data.errors import DataError
from training.data.files import building
from training.data.index_build import Index, build_index
from training.data.index_places import cache_entry, index_folder, room_needed
from training.data.manifest import file_sha256
from training.data.workers import available_cores
from training.wire.schema import WireError, read_json, write_json

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
# The date of meta.json is the annotation file's less this: it travels with a copy that keeps dates, no other copy has it
# by chance, and the same annotations give the same bytes whenever they are converted.
_DATED_BACK_NS = 86_400 * 10**9
_MOST_WORKERS = 16


@dataclass(frozen=True)
class _Meta:
    """What meta.json holds. `json_bytes` and `json_sha256` are of the annotation file."""

    version: int
    json_bytes: int
    json_sha256: str
    classes: list[str]
    category_ids: list[int]


@dataclass(frozen=True)
class _Digest:
    """What an annotation file's SHA-256 was, to spare reading it again."""

    bytes: int
    mtime_ns: int
    sha256: str


@dataclass(frozen=True)
class _Stored:
    """An index and the size, date and digest of the annotation file that it was made from."""

    index: Index
    bytes: int
    mtime_ns: int
    sha256: str


def write_index(json_path: Path, folder: Path, workers: int) -> Index:
    """Makes `folder`, new or empty, the index of an annotation file; the last file written makes it whole.

    Raises DataError for annotations that cannot be trained on (see `build_index`), OSError where it cannot be written.
    """
    index, source = build_index(json_path, workers)
    folder.mkdir(exist_ok=True)
    for name in _ARRAYS:
        save_array(folder / f"{name}.npy", getattr(index, name))
    meta = _Meta(_VERSION, source.bytes, source.sha256, index.classes, index.category_ids)
    write_json(folder / _META, meta)
    _date(folder, source.mtime_ns)
    return index


def open_index(json_path: Path, say: Callable[[str], None]) -> Index:
    """The index of an annotation file as it is now, its arrays mapped from files and read-only.

    It is the one beside the file, else the one in the node's cache, where one process of the node makes it. Whether an
    index is of this file is told by size and date, or where only the date differs by the file's SHA-256. `say` gets a
    line before and after what takes long. Raises DataError.
    """
    try:
        status = json_path.stat()
    except OSError as error:
        raise DataError(f"cannot read {json_path}: {error.strerror}; --data must name the folder above it") from error
    beside = _load(index_folder(json_path))
    if beside and (beside.bytes, beside.mtime_ns) == (status.st_size, status.st_mtime_ns):
        return beside.index
    with cache_entry(json_path, say) as entry:
        folder = entry / "index"
        stored = [one for one in (beside, _load(folder)) if one and one.bytes == status.st_size]
        for one in stored:
            if one.mtime_ns == status.st_mtime_ns:
                return one.index
        sha256 = _digest(json_path, status, entry / "digest.json", say) if stored else None
        for one in stored:
            if one.sha256 == sha256:
                return one.index
        return _made(json_path, folder, status.st_size, say)


def _made(json_path: Path, folder: Path, json_bytes: int, say: Callable[[str], None]) -> Index:
    say(f"indexing {json_path} ({_size(json_bytes)}), once for this node")
    start_s = time.monotonic()
    for leftover in folder.parent.glob(f".{folder.name}.{socket.gethostname()}.*"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a killed process: this one has the lock
    with room_needed(folder, json_path), building(folder) as partial:
        write_index(json_path, partial, min(available_cores(), _MOST_WORKERS))
    stored = _load(folder)
    if stored is None:
        raise DataError(
            f"{folder}: what was just written there cannot be read; set SCALEOUT_CACHE_DIR to another folder"
        )
    index = stored.index
    say(f"indexed {len(index.image_ids)} images with {len(index.boxes)} boxes in {time.monotonic() - start_s:.1f} s")
    return index


def _digest(json_path: Path, status: os.stat_result, remembered: Path, say: Callable[[str], None]) -> str:
    """The SHA-256 of an annotation file whose date is not that of its index, computed once per node."""
    with suppress(OSError, WireError):
        known = read_json(_Digest, remembered)
        if (known.bytes, known.mtime_ns) == (status.st_size, status.st_mtime_ns):
            return known.sha256
    say(f"{json_path} ({_size(status.st_size)}) is not dated like its index: comparing its SHA-256, once for this node")
    start_s = time.monotonic()
    try:
        sha256 = file_sha256(json_path)
    except OSError as error:
        raise DataError(f"cannot read {json_path}: {error.strerror}; start again when it can be read") from error
    say(f"computed its SHA-256 in {time.monotonic() - start_s:.1f} s")
    with suppress(OSError):
        write_json(remembered, _Digest(status.st_size, status.st_mtime_ns, sha256))
    return sha256


def _load(folder: Path) -> _Stored | None:
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
    return _Stored(index, meta.json_bytes, dated_ns + _DATED_BACK_NS, meta.json_sha256)


def _is_sound(index: Index) -> bool:
    """Whether all arrays are there with the types and shapes that belong together."""
    for name, kind in _ARRAYS.items():
        array = getattr(index, name)
        columns = (4,) if name == "boxes" else ()
        if array is None or array.ndim == 0 or array.shape[1:] != columns:
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


def _date(folder: Path, json_mtime_ns: int) -> None:
    dated_ns = json_mtime_ns - _DATED_BACK_NS
    with suppress(OSError):  # a file system that cannot: the digest decides
        os.utime(folder / _META, ns=(dated_ns, dated_ns))


def _size(size_bytes: int) -> str:
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"
