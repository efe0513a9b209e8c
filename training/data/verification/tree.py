"""What lies in a data set's folder beyond the files that its records name."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from training.data.files import is_leftover
from training.data.inflation.plan import PLAN_FILE
from training.data.manifest import MANIFEST_FILE
from training.data.shards import ANNOTATIONS_SHARD, INDEX_SHARD, SHARDS_FOLDER, shard_of
from training.data.verification.damage import EXTRA, LEFTOVER, UNREADABLE, Damages
from training.data.verification.folders import Listed, listed
from training.data.verification.listing import ShardListing

_TOP = (MANIFEST_FILE, PLAN_FILE, SHARDS_FOLDER)


def find_extras(out: Path, listings: Iterable[ShardListing], lost: list[str], damages: Damages) -> None:
    """Adds files and folders that belong to no shard, and what killed runs left.

    `lost` are the shards without a record that can be read: what may be theirs is passed over.
    """
    beyond: dict[str, Listed] = {}
    keys: dict[str, set[str]] = {}
    shared: dict[str, set[str]] = {}
    for listing in listings:
        for folder, names in listing.shared.items():
            shared.setdefault(folder, set()).update(names)
        for folder, rest in listing.beyond.items():
            known = beyond.get(folder)
            beyond[folder] = Listed(known.files & rest.files, known.folders & rest.folders) if known else rest
            keys.setdefault(folder, set()).add(listing.key)
    for folder, names in shared.items():
        rest = beyond.get(folder) or _listed(out, folder, damages)
        beyond[folder] = Listed(rest.files - names, rest.folders - names)
    above = {str(parent) for folder in beyond for parent in PurePosixPath(folder).parents}
    folders = [""]
    while folders:
        folder = folders.pop()
        inside = beyond.get(folder) or _listed(out, folder, damages)
        owners = keys.get(folder, set())
        shard = next(iter(owners)) if len(owners) == 1 else ""
        for name in sorted(inside.files | inside.folders):
            path, is_folder = posixpath.join(folder, name), name in inside.folders
            if path in _TOP or any(_may_be_of(path, key) for key in lost):
                continue
            if path in beyond or path in above or (lost and is_folder and not (out / path).is_symlink()):
                folders.append(path)
            else:
                _add(out, path, shard, is_folder, damages)


def find_extra_records(out: Path, keys: Iterable[str], damages: Damages) -> None:
    """Adds what lies among the records that is none of the shards `keys`."""
    expected: dict[str, set[str]] = {}
    for key in keys:
        split, name = shard_of(key)
        expected.setdefault(split, set()).add(f"{name}.json")
    for folder, names in [("", set(expected)), *expected.items()]:
        path = posixpath.join(SHARDS_FOLDER, folder).rstrip("/")
        inside = _listed(out, path, damages)
        for name in sorted((inside.files | inside.folders) - names):
            _add(out, f"{path}/{name}", "", name in inside.folders, damages)


def _listed(out: Path, folder: str, damages: Damages) -> Listed:
    try:
        return listed(out / folder)
    except FileNotFoundError:
        return Listed(frozenset(), frozenset())
    except OSError as error:
        damages.add(UNREADABLE, "", folder, f"cannot be listed ({error.strerror})")
        return Listed(frozenset(), frozenset())


def _may_be_of(path: str, key: str) -> bool:
    """Whether a path may belong to a shard whose record is lost: going by the names of folders."""
    split, name = shard_of(key)
    parts = path.split("/")
    if name in (ANNOTATIONS_SHARD, INDEX_SHARD):
        return parts[0] == name and (len(parts) == 1 or split in parts[1])
    is_named = any(part == name or part.startswith(f"{name}.") for part in parts)
    return is_named and any(part.startswith(split) for part in parts)


def _add(out: Path, path: str, shard: str, is_folder: bool, damages: Damages) -> None:
    if is_leftover(posixpath.basename(path)):
        damages.add(LEFTOVER, shard, path, "was left by a run that was killed")
    elif is_folder:
        files = sum(len(names) for _, _, names in os.walk(out / path))
        damages.add(EXTRA, shard, path, f"is a folder of no shard, with {files} files")
    else:
        damages.add(EXTRA, shard, path, "belongs to no shard")
