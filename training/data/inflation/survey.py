"""What of an inflated set is there already."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from training.data.errors import DataError
from training.data.files import LOOKUPS_AT_ONCE, is_leftover
from training.data.inflation.base import TRAIN
from training.data.inflation.labels import Labels, folders
from training.data.inflation.layout import Shard
from training.data.names import holds_pictures, is_foreign, is_taken
from training.data.shards import SHARDS_FOLDER, ShardRecord, read_record, record_path, shard_of


@dataclass(frozen=True)
class Survey:
    """`left` are the shards to make, in order; of them there are `left_bytes` in `left_files`, which take no further room."""

    left: list[str]
    left_bytes: int
    left_files: int


def recorded(out: Path) -> set[str]:
    """The shards that have a record, `<split>/<shard>`, found by listing: a client of a NAS remembers what was not there."""
    return {
        f"{split.name}/{entry.name.removesuffix('.json')}"
        for split in _entries(out / SHARDS_FOLDER)
        for entry in _entries(Path(split.path))
        if entry.name.endswith(".json") and not entry.name.startswith(".")
    }


def survey(out: Path, labels: Labels, train: Sequence[Shard], carried: Sequence[str]) -> Survey:
    """Looks whether every shard has its record and all that it names with the right sizes, and no other picture beside it.

    Files are not opened. Raises DataError for a folder of pictures that is no shard's.
    """
    _check_folders(out, labels, train)
    there = recorded(out)
    own = {f"{TRAIN}/{shard.name}": [out / folder for folder in folders(labels, shard)] for shard in train}
    names = [*own, *carried]

    def look(key: str) -> tuple[bool, int, int]:
        sizes = _sizes(own.get(key, ()))
        record = read_record(out, *shard_of(key)) if key in there else None
        if record is not None and _is_whole(out, record, sizes):
            return True, 0, 0
        return False, sum(sizes.values()), len(sizes)

    with ThreadPoolExecutor(LOOKUPS_AT_ONCE) as lookups:
        looked = dict(zip(names, lookups.map(look, names), strict=True))
    left = [key for key, (whole, *_) in looked.items() if not whole]
    return Survey(
        left,
        left_bytes=sum(looked[key][1] for key in left),
        left_files=sum(looked[key][2] for key in left),
    )


def remove_records(out: Path, keys: Iterable[str]) -> None:
    """So that shards count as not there."""
    for key in keys:
        record_path(out, *shard_of(key)).unlink(missing_ok=True)


def _is_whole(out: Path, record: ShardRecord, sizes: dict[Path, int]) -> bool:
    wanted = {out / path: stored.bytes for path, stored in record.files.items()}
    elsewhere = {path: _size(path) for path in wanted if path not in sizes}
    ours = {
        path: size for path, size in sizes.items() if path in wanted or is_taken(path.name) or is_leftover(path.name)
    }
    return wanted == {**ours, **elsewhere}


def _check_folders(out: Path, labels: Labels, train: Sequence[Shard]) -> None:
    own = {shard.name for shard in train}
    for part in (labels.images, labels.masks):
        for entry in _entries(out / part) if part else ():
            if entry.name not in own and not is_foreign(entry.name) and holds_pictures(Path(entry.path)):
                raise DataError(
                    f"{entry.path}: is of no frame of the base set, and its pictures would be read with the others; move it away"
                )


def _sizes(of: Iterable[Path]) -> dict[Path, int]:
    """Of the files in these folders, by path."""
    return {folder / entry.name: entry.stat().st_size for folder in of for entry in _entries(folder) if entry.is_file()}


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except (FileNotFoundError, NotADirectoryError):
        return
