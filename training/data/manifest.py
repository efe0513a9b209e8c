"""The manifest of a data set. It is written last: where it is, the data set is whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from training.data.errors import DataError
from training.data.names import is_utf8
from training.wire.schema import WireError, read_json, to_dict, write_json

SCHEMA = 2
WORKLOAD = "ssd"
MANIFEST_FILE = "manifest.json"
ANNOTATIONS_FOLDER = "annotations"


def split_folder(split: str) -> str:
    """`train2017`: COCO's name of a split's folder, which the reference SSD program reads."""
    return f"{split}2017"


def annotations_file(split: str) -> str:
    """`annotations/instances_train2017.json`."""
    return f"{ANNOTATIONS_FOLDER}/instances_{split_folder(split)}.json"


def left_out_file(split: str) -> str:
    """`annotations/left_out_train2017.json`: what was left out of a split, and why."""
    return f"{ANNOTATIONS_FOLDER}/left_out_{split_folder(split)}.json"


@dataclass(frozen=True)
class SplitManifest:
    """What a split holds. `width` and `height` in px are null where there is no frame or frames differ in size.

    Detection reads its labels from the annotations, hence no `label_bytes`; segmentation from masks, and has no
    `annotations`.
    """

    images: int
    annotations: int
    image_bytes: int
    label_bytes: int
    width: int | None
    height: int | None


@dataclass(frozen=True)
class Generator:
    """The program that made a data set, `training/data/convert.py`, and what the bytes that it wrote depend on.

    `version` is one more whenever the same source and settings give another result. `settings` are all choices, as text.
    `libraries` are the versions of the packages that it worked with.
    """

    program: str
    version: int
    settings: dict[str, str]
    libraries: dict[str, str]


@dataclass(frozen=True)
class Manifest:
    """`categories` are names in the order of their ids; `shards` has the SHA-256 of the record of `<split>/<shard>`.

    `content_sha256` is of all the rest, and set by `write_manifest`.
    """

    schema: int
    workload: str
    generator: Generator
    source: str
    source_sha256: str
    categories: list[str]
    splits: dict[str, SplitManifest]
    shards: dict[str, str]
    content_sha256: str = ""


def library_versions(*packages: str) -> dict[str, str]:
    """The versions of installed packages, for a Generator."""
    return {package: version(package) for package in packages}


def write_manifest(out: Path, manifest: Manifest) -> Manifest:
    """Writes a manifest with the digest of its content, and gives what it wrote. Raises OSError."""
    manifest = replace(manifest, content_sha256=content_sha256(manifest))
    write_json(out / MANIFEST_FILE, manifest)
    return manifest


def content_sha256(record: Any) -> str:
    """The SHA-256 of all of a manifest, or another such record, but its `content_sha256`."""
    document = to_dict(replace(record, content_sha256=""))
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def read_manifest(out: Path, workload: str = WORKLOAD) -> Manifest | None:
    """The manifest of a workload's data set, or None where there is none that is unaltered and of this version."""
    try:
        manifest = read_json(Manifest, out / MANIFEST_FILE)
    except (OSError, WireError):
        return None
    understood = (manifest.schema, manifest.workload) == (SCHEMA, workload)
    return manifest if understood and manifest.content_sha256 == content_sha256(manifest) else None


def check_not_later(out: Path) -> None:
    """Raises DataError where a later version of these programs wrote the manifest, which is not to be overwritten."""
    try:
        schema = json.loads((out / MANIFEST_FILE).read_bytes())["schema"]
    except (OSError, ValueError, TypeError, KeyError):
        return
    if isinstance(schema, int) and schema > SCHEMA:
        raise DataError(
            f"{out / MANIFEST_FILE}: schema {schema}, of a later version, and this one knows {SCHEMA}; use that version, or "
            "give another --out"
        )


def manifest_sha256(root: Path) -> str | None:
    """The digest of a data set's manifest.json, None where there is none."""
    path = root / MANIFEST_FILE
    return file_sha256(path) if path.is_file() else None


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_sha256(root: Path, paths: Iterable[Path]) -> str:
    """The fingerprint of source files: SHA-256 over their relative paths, sizes in bytes and mtime_ns. Raises DataError."""
    digest = hashlib.sha256()
    for path in paths:
        if not is_utf8(path):
            raise DataError(f"{path}: a name that is not UTF-8, which no manifest can hold; rename it")
        status = path.stat()
        digest.update(f"{path.relative_to(root).as_posix()}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
