"""Whether a folder may be replaced by a data set: only by one of its own kind."""

from __future__ import annotations

from pathlib import Path

from training.data.errors import DataError
from training.data.manifest import MANIFEST_FILE, read_manifest


def check_replaceable(out: Path, source: Path, names: set[str], workload: str) -> None:
    """Raises DataError unless `out` is free, or holds only `names` with a manifest of that workload."""
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
    if strange or (found and read_manifest(out, workload) is None):
        what = f"holds {min(strange)}, which" if strange else "has no manifest.json of this version, so holds what"
        raise DataError(f"{out}: {what} this program did not write; give another --out, or empty the folder")
