"""Reads files and compares their content with the records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from training.data.errors import DataError
from training.data.names import is_picture
from training.data.pictures import picture_size
from training.data.shards import StoredFile, read_record, shard_of, stored_file
from training.data.verification.damage import MISSING, UNREADABLE, Damages

FILES_A_TASK = 64

_NEIGHBOURS = 5
_PARSED_BYTES = 64_000_000


@dataclass(frozen=True)
class ContentTask:
    """Files of a shard to read, by their places in its record. `size` is what pictures of the split have, in px."""

    out: Path
    key: str
    places: Sequence[int]
    size: tuple[int, int] | None


@dataclass(frozen=True)
class Strange:
    """A file that holds something else than its record says.

    `size` is in px, None where it is no picture that is whole; `expected_size` None where nothing tells. `is_whole`
    says whether the file ends as files of its kind do.
    """

    key: str
    path: str
    recorded: StoredFile
    found: StoredFile
    is_whole: bool
    size: tuple[int, int] | None
    expected_size: tuple[int, int] | None
    links: int


@dataclass
class ContentRead:
    """What reading told. `files` and `size_bytes` are what was read."""

    files: int = 0
    size_bytes: int = 0
    strange: list[Strange] = field(default_factory=list)
    damages: Damages = field(default_factory=Damages)


def read_content(task: ContentTask) -> ContentRead:
    """Digests the files of a task. A file that is gone since it was listed counts as missing."""
    read = ContentRead()
    record = read_record(task.out, *shard_of(task.key))
    files = list(record.files.items()) if record else []
    for place in task.places if files else ():
        path, recorded = files[place]
        read.files += 1
        try:
            found = stored_file(task.out / path)
            read.size_bytes += found.bytes
            if found != recorded:
                read.strange.append(_look_at(task, path, recorded, found, [name for name, _ in files]))
        except FileNotFoundError:
            read.damages.add(MISSING, task.key, path, "is not there")
        except OSError as error:
            read.damages.add(UNREADABLE, task.key, path, f"cannot be read ({error.strerror})")
    return read


def _look_at(task: ContentTask, path: str, recorded: StoredFile, found: StoredFile, names: list[str]) -> Strange:
    full = task.out / path
    size = expected = None
    is_whole = found.bytes >= recorded.bytes
    if is_picture(path):
        size = _size(full)
        is_whole = size is not None
        expected = task.size or _size_of_neighbours(task.out, path, names)
    elif full.suffix == ".json" and not is_whole:
        is_whole = _is_whole_json(full, found.bytes)
    return Strange(task.key, path, recorded, found, is_whole, size, expected, full.stat().st_nlink)


def _size(path: Path) -> tuple[int, int] | None:
    try:
        return picture_size(path)
    except DataError:
        return None


def _size_of_neighbours(out: Path, path: str, names: list[str]) -> tuple[int, int] | None:
    """What the next pictures of the shard have in common; None where they differ or are none."""
    pictures, sizes = [name for name in names if is_picture(name)], set()
    place = pictures.index(path)
    for name in pictures[max(0, place - _NEIGHBOURS) : place] + pictures[place + 1 : place + 1 + _NEIGHBOURS]:
        with suppress(OSError, DataError):
            sizes.add(picture_size(out / name))
    return sizes.pop() if len(sizes) == 1 else None


def _is_whole_json(path: Path, size_bytes: int) -> bool:
    if size_bytes > _PARSED_BYTES:
        with path.open("rb") as file:
            file.seek(-16, 2)
            return file.read().rstrip().endswith(b"}")
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True
