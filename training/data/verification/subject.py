"""The data set to verify: its manifest, as far as it can be read, and the records that there are."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from training.data.errors import DataError
from training.data.manifest import MANIFEST_FILE, SCHEMA, Manifest, content_sha256
from training.data.shards import SHARDS_FOLDER, shard_key, shard_of
from training.data.verification.damage import MANIFEST, Damages
from training.wire.schema import WireError, from_dict


@dataclass(frozen=True)
class Subject:
    """`manifest` is None where it is lost, and not to be gone by unless it `is_sound`.

    `shards` are keys with the SHA-256 of their records, where a sound manifest tells.
    """

    out: Path
    manifest: Manifest | None
    is_sound: bool
    shards: dict[str, str | None]

    def size(self, key: str) -> tuple[int, int] | None:
        """Width and height in px that all pictures of a shard have, where the manifest tells."""
        split = self.manifest.splits.get(shard_of(key)[0]) if self.manifest and self.is_sound else None
        return (split.width, split.height) if split and split.width and split.height else None


def read_subject(out: Path, damages: Damages) -> Subject:
    """Reads what a data set says of itself; what is wrong with the manifest is added to `damages`.

    Raises DataError for a folder that cannot be verified.
    """
    if not out.is_dir():
        raise DataError(f"{out}: no such folder; --data must name a prepared data set")
    records = sorted(out.glob(f"{SHARDS_FOLDER}/*/[!.]*.json"))
    recorded: dict[str, str | None] = {shard_key(path.parent.name, path.stem): None for path in records}
    manifest, problem = _manifest(out)
    if problem and not recorded:
        raise DataError(
            f"{out / MANIFEST_FILE}: {problem}, and there are no records of shards to go by; prepare the data set"
        )
    if manifest is None:
        damages.add(MANIFEST, "", MANIFEST_FILE, problem)
        return Subject(out, None, False, recorded)
    if manifest.content_sha256 == content_sha256(manifest):
        return Subject(out, manifest, True, dict(manifest.shards))
    damages.add(MANIFEST, "", MANIFEST_FILE, "was altered: its content_sha256 is not that of its content")
    return Subject(out, manifest, False, dict.fromkeys(manifest.shards) | recorded)


def _manifest(out: Path) -> tuple[Manifest | None, str]:
    """The manifest, or what is wrong with it."""
    path = out / MANIFEST_FILE
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None, "is not there"
    except ValueError:
        return None, "is damaged: not JSON"
    if isinstance(document, dict) and isinstance(schema := document.get("schema"), int) and schema != SCHEMA:
        version = "an earlier" if schema < SCHEMA else "a later"
        raise DataError(
            f"{path}: schema {schema}, of {version} version, and this one verifies {SCHEMA}; "
            "prepare the data set again with this version"
        )
    try:
        return from_dict(Manifest, document, str(path)), ""
    except WireError as error:
        return None, f"is damaged: {str(error).removeprefix(f'{path}: ')}"
