"""What the listings of folders, and the sizes of files, tell about a shard."""

from __future__ import annotations

import hashlib
import posixpath
import random
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from training.data.names import is_image, is_mask
from training.data.shards import ShardRecord, StoredFile, parse_record, record_path, shard_of
from training.data.verification.damage import MISSING, RECORD, UNREADABLE, Damages
from training.data.verification.folders import Listed, listed


@dataclass(frozen=True)
class ShardTask:
    """A shard of the set in `out`, and its record's SHA-256 where the manifest tells.

    `sizes` says how many files' sizes are looked up: None for all.
    """

    out: Path
    key: str
    sha256: str | None
    sizes: int | None = None

    @property
    def split(self) -> str:
        return shard_of(self.key)[0]

    @property
    def name(self) -> str:
        return shard_of(self.key)[1]


@dataclass
class ShardListing:
    """What was found of a shard. `trusted` says whether its record can be gone by.

    Folders with the shard's name in their path are its own: `beyond` has their listings, less the shard's files. Of the
    others, `shared` has the names that are the shard's. `absent` and `resized` have the places in the record of files
    that cannot be read and of those whose size is another. Images, masks and `label_files` (all the other files, by
    their places) are counted as the record has them.
    """

    key: str
    trusted: bool = False
    files: int = 0
    size_bytes: int = 0
    images: int = 0
    image_bytes: int = 0
    mask_bytes: int = 0
    label_files: list[int] = field(default_factory=list)
    absent: list[int] = field(default_factory=list)
    resized: list[int] = field(default_factory=list)
    beyond: dict[str, Listed] = field(default_factory=dict)
    shared: dict[str, list[str]] = field(default_factory=dict)
    damages: Damages = field(default_factory=Damages)


def list_shard(task: ShardTask) -> ShardListing:
    """Compares a shard's record with the manifest, and the folders with the record. No file is opened."""
    found = ShardListing(task.key)
    record = trusted_record(task, found.damages)
    found.trusted = not found.damages
    if record is None:
        return found
    _count(record, found)
    look = _Look(task, record, found)
    for folder, names in _by_folder(record.files).items():
        look.at(folder, names)
    return found


def trusted_record(task: ShardTask, damages: Damages) -> ShardRecord | None:
    """The record of a shard, also where it is not the manifest's; what is wrong with it is added to `damages`."""
    path = record_path(task.out, task.split, task.name)
    shown = path.relative_to(task.out).as_posix()
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        damages.add(RECORD, task.key, shown, "is missing, so nothing tells what the shard held")
        return None
    except OSError as error:
        damages.add(RECORD, task.key, shown, f"cannot be read ({error.strerror})")
        return None
    record = parse_record(content, task.split, task.name)
    if record is None:
        damages.add(RECORD, task.key, shown, "is damaged: not the record of this shard")
    elif task.sha256 not in (None, hashlib.sha256(content).hexdigest()):
        damages.add(RECORD, task.key, shown, "was altered: its SHA-256 is not the manifest's")
    return record


def _count(record: ShardRecord, found: ShardListing) -> None:
    found.files = len(record.files)
    for place, (path, stored) in enumerate(record.files.items()):
        found.size_bytes += stored.bytes
        if is_image(path):
            found.images += 1
            found.image_bytes += stored.bytes
        elif is_mask(path):
            found.mask_bytes += stored.bytes
        else:
            found.label_files.append(place)


def _by_folder(files: dict[str, StoredFile]) -> dict[str, dict[str, StoredFile]]:
    folders: dict[str, dict[str, StoredFile]] = {}
    for path, stored in files.items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, {})[name] = stored
    return folders


class _Look:
    """Looks at the folders of one shard, and puts what it sees into `found`; without a trusted record, no damage."""

    def __init__(self, task: ShardTask, record: ShardRecord, found: ShardListing) -> None:
        self._task, self._found = task, found
        self._places = {path: place for place, path in enumerate(record.files)}

    def at(self, folder: str, names: dict[str, StoredFile]) -> None:
        if self._task.name in folder.split("/"):
            there = self._listed(folder, names)
        else:
            there = self._found.shared[folder] = sorted(names)
        for name in there if self._found.trusted else ():
            path = posixpath.join(folder, name)
            if not self._has_size(path, names[name].bytes):
                self._found.resized.append(self._places[path])

    def _listed(self, folder: str, names: dict[str, StoredFile]) -> list[str]:
        """Lists a folder of the shard's own, and gives the names there of files to look up."""
        try:
            inside = listed(self._task.out / folder)
        except (FileNotFoundError, NotADirectoryError):
            self._damage(MISSING, folder, names, "is not there, nor is its folder")
            return []
        except OSError as error:
            self._damage(UNREADABLE, folder, names, f"its folder cannot be listed ({error.strerror})")
            return []
        self._found.beyond[folder] = Listed(inside.files - names.keys(), inside.folders - names.keys())
        self._damage(MISSING, folder, names.keys() & inside.folders, "is a folder")
        self._damage(MISSING, folder, names.keys() - inside.files - inside.folders, "is not there")
        there = sorted(names.keys() & inside.files)
        count = self._task.sizes
        return there if count is None or count >= len(there) else random.sample(there, count)

    def _has_size(self, path: str, size_bytes: int) -> bool:
        """Whether a file that is there has that size; True also where it is another kind of damage, which is added."""
        full = self._task.out / path
        folder, name = posixpath.split(path)
        try:
            status = full.stat()
        except (FileNotFoundError, NotADirectoryError):
            self._damage(
                MISSING, folder, [name], "is a link that leads nowhere" if full.is_symlink() else "is not there"
            )
        except OSError as error:
            self._damage(UNREADABLE, folder, [name], f"cannot be looked up ({error.strerror})")
        else:
            if stat.S_ISREG(status.st_mode):
                return status.st_size == size_bytes
            self._damage(MISSING, folder, [name], "is not a file")
        return True

    def _damage(self, kind: str, folder: str, names: Iterable[str], what: str) -> None:
        for path in sorted(posixpath.join(folder, name) for name in names) if self._found.trusted else ():
            self._found.damages.add(kind, self._task.key, path, what)
            self._found.absent.append(self._places[path])
