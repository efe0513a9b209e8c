"""The manifest of a converted data set. It is written last: where it is, the data set is whole."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from training.wire.schema import WireError, read_json

SCHEMA = 1
CONVERTER = 1  # one more whenever the same source gives another result
WORKLOAD = "ssd"
MANIFEST_FILE = "manifest.json"
ANNOTATIONS_FOLDER = "annotations"


def split_folder(split: str) -> str:
    """`train2017`: COCO's name of a split's folder, which the reference SSD program reads."""
    return f"{split}2017"


def annotations_file(split: str) -> str:
    """`annotations/instances_train2017.json`."""
    return f"{ANNOTATIONS_FOLDER}/instances_{split_folder(split)}.json"


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
class Manifest:
    """`categories` are names in the order of their ids; `annotations_sha256` is per split."""

    schema: int
    workload: str
    converter: int
    source: str
    source_sha256: str
    categories: list[str]
    splits: dict[str, SplitManifest]
    annotations_sha256: dict[str, str]


def read_manifest(out: Path, workload: str = WORKLOAD) -> Manifest | None:
    """The manifest of a workload's data set, or None where there is none that this version understands."""
    try:
        manifest = read_json(Manifest, out / MANIFEST_FILE)
    except (OSError, WireError):
        return None
    return manifest if (manifest.schema, manifest.workload) == (SCHEMA, workload) else None


def manifest_sha256(root: Path) -> str | None:
    """The digest of a data set's manifest.json, None where there is none."""
    path = root / MANIFEST_FILE
    return file_sha256(path) if path.is_file() else None


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_sha256(root: Path, paths: Iterable[Path]) -> str:
    """The fingerprint of source files: SHA-256 over their relative paths, sizes in bytes and mtime_ns."""
    digest = hashlib.sha256()
    for path in paths:
        status = path.stat()
        digest.update(f"{path.relative_to(root).as_posix()}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def is_whole(out: Path, manifest: Manifest) -> bool:
    """Whether the files that a manifest names are there, with the counts, sizes and hashes that it gives."""
    for split, held in manifest.splits.items():
        sizes = [path.stat().st_size for path in (out / split_folder(split)).glob("*/*.png")]
        annotations = out / annotations_file(split)
        if (len(sizes), sum(sizes)) != (held.images, held.image_bytes) or not annotations.is_file():
            return False
        if file_sha256(annotations) != manifest.annotations_sha256[split]:
            return False
    return True
