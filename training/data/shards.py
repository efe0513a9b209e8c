"""The records of a data set's shards: every file with its size and digest, OUT/shards/<split>/<shard>.json.

A shard's record is written after its files. A shard without one is unfinished.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from training.data.files import make_folder
from training.wire.schema import write_json

SCHEMA = 1
SHARDS_FOLDER = "shards"
ANNOTATIONS_SHARD = "annotations"
INDEX_SHARD = "index"

_DIGEST_BYTES = 16
_DATE_BYTES = 3
_FIRST_DATE_S = 946_684_800  # 2000-01-01; the dates are in the half year from there


@dataclass(frozen=True)
class StoredFile:
    """A file's size and the BLAKE2b of its content, 128 bits in hex."""

    bytes: int
    digest: str


@dataclass(frozen=True)
class ShardRecord:
    """The files of a shard, by their paths below the data set's folder, with `/` between."""

    schema: int
    split: str
    name: str
    files: dict[str, StoredFile]


def content_digest(content: bytes | bytearray | memoryview) -> str:
    """The digest that a file of this content has in a record."""
    return _blake2b(content).hexdigest()


def stored_file(path: Path) -> StoredFile:
    """Reads a file to its end. Raises OSError."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, _blake2b)
        return StoredFile(file.tell(), digest.hexdigest())


def record_path(out: Path, split: str, name: str) -> Path:
    """Where the record of a shard lies."""
    return out / SHARDS_FOLDER / split / f"{name}.json"


def write_record(out: Path, record: ShardRecord) -> None:
    """Writes a shard's record, so that a reader sees none, the old or the whole new one. Raises DataError, OSError."""
    path = record_path(out, record.split, record.name)
    make_folder(path.parent)
    write_json(path, record)


def shard_key(split: str, name: str) -> str:
    """`train/aachen`: the name of a shard in the manifest."""
    return f"{split}/{name}"


def shard_of(key: str) -> tuple[str, str]:
    """The split and the name of a shard, from its key."""
    split, _, name = key.partition("/")
    return split, name


def record_files(out: Path, split: str, name: str, files: dict[str, StoredFile]) -> dict[str, str]:
    """Writes the record of these files, and gives the shard's entry for the manifest: key to SHA-256."""
    write_record(out, ShardRecord(SCHEMA, split, name, files))
    return {shard_key(split, name): record_sha256(out, split, name)}


def stored_below(out: Path, *paths: Path) -> dict[str, StoredFile]:
    """What a record of a shard has of these files, and of all files in these folders. Reads them all."""
    files: dict[str, StoredFile] = {}
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file():
                files[file.relative_to(out).as_posix()] = stored_file(file)
    return files


def date_folders(folders: Iterable[Path], files: Mapping[str, StoredFile]) -> None:
    """Dates a shard's folders by its files, the same for the same and another for others: indexes go by these dates."""
    content = json.dumps({path: files[path].digest for path in sorted(files)}).encode()
    dated_s = _FIRST_DATE_S + int.from_bytes(hashlib.blake2b(content, digest_size=_DATE_BYTES).digest())
    for folder in folders:
        os.utime(folder, (dated_s, dated_s))


def read_record(out: Path, split: str, name: str) -> ShardRecord | None:
    """The record of a shard, or None where there is none that is whole and of this version."""
    try:
        return parse_record(record_path(out, split, name).read_bytes(), split, name)
    except OSError:
        return None


def parse_record(content: bytes, split: str, name: str) -> ShardRecord | None:
    """The record in the content of its file; None where it is another's, damaged, or of another version."""
    try:
        # Sixty times as fast as the wire's strict reader, and a set has millions of files.
        record = msgspec.json.decode(content, type=ShardRecord)
    except msgspec.DecodeError:
        return None
    return record if (record.schema, record.split, record.name) == (SCHEMA, split, name) else None


def record_sha256(out: Path, split: str, name: str) -> str:
    """The SHA-256 of a record's file, as the manifest has it. Raises OSError."""
    with record_path(out, split, name).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _blake2b(content: bytes | bytearray | memoryview = b"") -> hashlib.blake2b:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES)
