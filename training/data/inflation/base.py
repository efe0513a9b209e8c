"""The base set that is inflated: a whole set with a manifest and records, as convert.py and prepare.py make it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.data.errors import DataError
from training.data.manifest import Manifest, read_manifest
from training.data.shards import (
    INDEX_SHARD,
    ShardRecord,
    StoredFile,
    content_digest,
    read_record,
    record_sha256,
    shard_of,
)

TRAIN = "train"


@dataclass(frozen=True)
class SourceFile:
    """A file of the base set by its path below it."""

    path: str
    stored: StoredFile


@dataclass(frozen=True)
class Frame:
    """A frame of train: its picture and, for segmentation, its mask."""

    name: str
    image: SourceFile
    mask: SourceFile | None = None


@dataclass(frozen=True)
class BaseSet:
    """`records` are those of all shards by (split, name); `sha256` is of all content but indexes, whose bytes have dates."""

    root: Path
    manifest: Manifest
    records: dict[tuple[str, str], ShardRecord]
    sha256: str

    def files(self, split: str) -> dict[str, StoredFile]:
        """The files of a split, by path."""
        return {
            path: stored
            for (of, _), record in sorted(self.records.items())
            for path, stored in record.files.items()
            if of == split
        }


def open_base(root: Path, workload: str, maker: str) -> BaseSet:
    """The base set in a folder; `maker` is the program that makes one. Raises DataError where none is there whole."""
    manifest = read_manifest(root, workload)
    if manifest is None:
        raise DataError(
            f"{root}: no whole {workload} set is there (manifest.json of this version); make it with {maker}"
        )
    records = {}
    for key, sha256 in manifest.shards.items():
        split, name = shard_of(key)
        record = read_record(root, split, name)
        if record is None or record_sha256(root, split, name) != sha256:
            raise DataError(f"{root}: the record of {key} is missing or altered; make the set again with {maker}")
        records[split, name] = record
    content = {key: sha256 for key, sha256 in manifest.shards.items() if not key.endswith(f"/{INDEX_SHARD}")}
    return BaseSet(root, manifest, records, hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest())


def check_names(frames: Sequence[Frame], root: Path) -> None:
    """Raises DataError where there is no frame, or two have the same name and so the same folder."""
    if not frames:
        raise DataError(f"{root}: has no frames of train to inflate; make it from a data set that has")
    seen: dict[str, Frame] = {}
    for frame in frames:
        if frame.name in seen:
            raise DataError(
                f"{root}: {seen[frame.name].image.path} and {frame.image.path} have the same name, and so would their "
                "variants; rename one of them and make the base set again"
            )
        seen[frame.name] = frame


def mean_bytes_of(frames: Sequence[Frame]) -> float:
    """The mean size of the frames' pictures."""
    return sum(frame.image.stored.bytes for frame in frames) / len(frames)


def read_source(base: BaseSet, file: SourceFile) -> bytes:
    """A file of the base set as its record has it. Raises DataError."""
    path = base.root / file.path
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); put the frame back") from error
    if content_digest(content) != file.stored.digest:
        raise DataError(
            f"{path}: is not what the base set's record says; put the file back, or make the base set again"
        )
    return content
