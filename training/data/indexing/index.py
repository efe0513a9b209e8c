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

from training.data.errors import DataError
from training.data.files import building
from training.data.indexing.index_build import Index, build_index
from training.data.indexing.index_files import IndexWriter, load_index
from training.data.indexing.index_places import cache_entry, index_folder, room_needed
from training.data.manifest import file_sha256
from training.data.sizes import size_text
from training.data.workers import available_cores
from training.wire.schema import WireError, read_json, write_json

_MOST_WORKERS = 16


@dataclass(frozen=True)
class _Digest:
    """What an annotation file's SHA-256 was, to spare reading it again."""

    bytes: int
    mtime_ns: int
    sha256: str


def write_index(json_path: Path, folder: Path, workers: int) -> Index:
    """Makes `folder`, new or empty, the index of an annotation file; the last file written makes it whole.

    Raises DataError for annotations that cannot be trained on (see `build_index`), OSError where it cannot be written.
    """
    index, source = build_index(json_path, workers)
    with IndexWriter(folder) as writer:
        writer.append(index)
        writer.finish(source.bytes, source.sha256, source.mtime_ns)
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
    beside = load_index(index_folder(json_path))
    if beside and (beside.bytes, beside.mtime_ns) == (status.st_size, status.st_mtime_ns):
        return beside.index
    with cache_entry(json_path, say) as entry:
        folder = entry / "index"
        stored = [one for one in (beside, load_index(folder)) if one and one.bytes == status.st_size]
        for one in stored:
            if one.mtime_ns == status.st_mtime_ns:
                return one.index
        sha256 = _digest(json_path, status, entry / "digest.json", say) if stored else None
        for one in stored:
            if one.sha256 == sha256:
                return one.index
        return _made(json_path, folder, status.st_size, say)


def _made(json_path: Path, folder: Path, json_bytes: int, say: Callable[[str], None]) -> Index:
    say(f"indexing {json_path} ({size_text(json_bytes)}), once for this node")
    start_s = time.monotonic()
    for leftover in folder.parent.glob(f".{folder.name}.{socket.gethostname()}.*"):
        shutil.rmtree(leftover, ignore_errors=True)  # of a killed process: this one has the lock
    with room_needed(folder, json_path), building(folder) as partial:
        write_index(json_path, partial, min(available_cores(), _MOST_WORKERS))
    stored = load_index(folder)
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
    say(
        f"{json_path} ({size_text(status.st_size)}) is not dated like its index: comparing its SHA-256, once for this node"
    )
    start_s = time.monotonic()
    try:
        sha256 = file_sha256(json_path)
    except OSError as error:
        raise DataError(f"cannot read {json_path}: {error.strerror}; start again when it can be read") from error
    say(f"computed its SHA-256 in {time.monotonic() - start_s:.1f} s")
    with suppress(OSError):
        write_json(remembered, _Digest(status.st_size, status.st_mtime_ns, sha256))
    return sha256
