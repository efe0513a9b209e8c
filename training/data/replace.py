"""Whether a folder may be replaced by a data set: only by one of its own kind."""

from __future__ import annotations

import json
from pathlib import Path

from training.data.errors import DataError
from training.data.manifest import MANIFEST_FILE
from training.data.shards import SHARDS_FOLDER

_SCHEMAS = (1, 2)


def check_replaceable(out: Path, source: Path, names: set[str], workload: str) -> None:
    """Raises DataError unless `out` is free, or holds only `names`, with a manifest of that workload or, without one, records."""
    if source == out or source.is_relative_to(out):
        raise DataError(f"{out}: would replace its own source {source}; give another --out")
    if out.is_mount():
        raise DataError(f"{out}: is a mount point, which cannot be replaced as a whole; give a folder inside it")
    if not out.exists():
        return
    if not out.is_dir():
        raise DataError(f"{out}: is a file; give a folder as --out")
    found = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    strange = found - {MANIFEST_FILE, *names}
    if strange or (found and not _is_ours(out, workload)):
        what = f"holds {min(strange)}, which" if strange else "has no manifest.json of this version, so holds what"
        raise DataError(f"{out}: {what} this program did not write; give another --out, or empty the folder")


def _is_ours(out: Path, workload: str) -> bool:
    try:
        document = json.loads((out / MANIFEST_FILE).read_bytes())
        return (document["schema"] in _SCHEMAS) and document["workload"] == workload
    except (OSError, ValueError, KeyError, TypeError):  # lost or damaged: only our programs write records
        return any(out.glob(f"{SHARDS_FOLDER}/*/*.json"))
