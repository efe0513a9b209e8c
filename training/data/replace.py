"""Whether a folder may be replaced by a data set: only by one of its own kind."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path

from training.data.errors import DataError
from training.data.manifest import MANIFEST_FILE, read_manifest
from training.data.names import is_passed_over
from training.data.shards import SHARDS_FOLDER, read_record, record_path, record_sha256, shard_key, shard_of

_SCHEMAS = (1, 2)
_SOURCE_PARTS = ("leftImg8bit", "gtFine", "gtCoarse")  # also leftImg8bit_trainvaltest and the like


def check_replaceable(out: Path, source: Path, names: set[str], workload: str) -> None:
    """Raises DataError unless `out` is free, or holds only `names`, with a manifest of that workload or, without one, records.

    Where all records can be read, every file has to be in one of them. Names with a dot in front, and those that are foreign
    everywhere, do not count.
    """
    if source == out or source.is_relative_to(out):
        raise DataError(f"{out}: would replace its own source {source}; give another --out")
    if source in out.parents and out.relative_to(source).parts[0].startswith(_SOURCE_PARTS):
        raise DataError(f"{out}: lies among the files of its source {source}; give an --out elsewhere")
    if out.is_mount():
        raise DataError(f"{out}: is a mount point, which cannot be replaced as a whole; give a folder inside it")
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError(f"{out}: is a file; give a folder as --out")
    found = {path.name for path in out.iterdir() if not is_passed_over(path.name)}
    strange = found - {MANIFEST_FILE, *names}
    if strange or (found and not _is_ours(out, workload)):
        what = f"holds {min(strange)}, which" if strange else "has no manifest.json of this version, so holds what"
        raise DataError(f"{out}: {what} this program did not write; give another --out, or empty the folder")
    strange_file = next(_in_no_record(out, workload), None)
    if strange_file:
        raise DataError(
            f"{out}: would be made anew, but holds {strange_file}, which is not of the data set; "
            "move that elsewhere, or give another --out"
        )


def _in_no_record(out: Path, workload: str) -> Iterator[str]:
    """The files below `out` that its records do not name; none where records are lost or damaged."""
    manifest = read_manifest(out, workload)
    keys = manifest.shards if manifest else dict.fromkeys(shard_key(*found) for found in _recorded(out))
    known = {MANIFEST_FILE}
    for key, sha256 in keys.items():
        split, name = shard_of(key)
        record = read_record(out, split, name)
        if record is None or sha256 not in (None, record_sha256(out, split, name)):
            return
        known |= {record_path(out, split, name).relative_to(out).as_posix(), *record.files}
    if not keys:
        return
    for folder, folders, names in os.walk(out):
        folders[:] = sorted(itertools.filterfalse(is_passed_over, folders))
        below = Path(folder).relative_to(out)
        paths = ((below / name).as_posix() for name in sorted(itertools.filterfalse(is_passed_over, names)))
        yield from (path for path in paths if path not in known)


def _recorded(out: Path) -> Iterator[tuple[str, str]]:
    return ((path.parent.name, path.stem) for path in sorted(out.glob(f"{SHARDS_FOLDER}/*/*.json")))


def _is_ours(out: Path, workload: str) -> bool:
    try:
        document = json.loads((out / MANIFEST_FILE).read_bytes())
        return (document["schema"] in _SCHEMAS) and document["workload"] == workload
    except (OSError, ValueError, KeyError, TypeError):  # lost or damaged: only our programs write records
        return any(_recorded(out))
