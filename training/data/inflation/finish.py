"""Finishes an inflated set whose shards are all there: the labels of the whole, and the manifest, last of all."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from training.data.errors import DataError
from training.data.files import LOOKUPS_AT_ONCE
from training.data.inflation.base import TRAIN, BaseSet
from training.data.inflation.labels import Labels
from training.data.inflation.layout import Shard
from training.data.manifest import SCHEMA, Generator, Manifest, SplitManifest, write_manifest
from training.data.shards import read_record, record_path, record_sha256, shard_key, shard_of


@dataclass(frozen=True)
class _Held:
    """What a shard's record says, in files and bytes."""

    sha256: str
    images: int
    image_bytes: int
    mask_bytes: int


def write_set(
    base: BaseSet, out: Path, labels: Labels, generator: Generator, shards: Sequence[Shard], workers: int
) -> Manifest:
    """Writes the labels and the manifest of a set whose shards are all there, and gives the manifest. Raises DataError."""
    finished = labels.finish(out, shards, workers)
    carried = [shard_key(*key) for key in base.records if key[0] != TRAIN and labels.is_carried(key[1])]
    with ThreadPoolExecutor(LOOKUPS_AT_ONCE) as lookups:
        held = dict(lookups.map(lambda shard: _held(out, labels, shard), shards))
        sha256 = dict(lookups.map(lambda key: (key, record_sha256(out, *shard_of(key))), carried))
    was = base.manifest.splits[TRAIN]
    splits = {**base.manifest.splits, TRAIN: SplitManifest(
        images=sum(part.images for part in held.values()),
        annotations=finished.annotations,
        image_bytes=sum(part.image_bytes for part in held.values()),
        label_bytes=sum(part.mask_bytes for part in held.values()),
        width=was.width,
        height=was.height,
    )}  # fmt: skip
    return write_manifest(out, Manifest(
        schema=SCHEMA,
        workload=labels.workload,
        generator=generator,
        source=str(base.root),
        source_sha256=base.sha256,
        categories=base.manifest.categories,
        splits=splits,
        shards={key: part.sha256 for key, part in held.items()} | finished.shards | sha256,
    ))  # fmt: skip


def _held(out: Path, labels: Labels, shard: Shard) -> tuple[str, _Held]:
    """A shard's key and what it holds. Raises DataError."""
    record = read_record(out, TRAIN, shard.name)
    files = record.files if record else {}
    images = [file.bytes for path, file in files.items() if path.startswith(f"{labels.images}/")]
    masks = [file.bytes for path, file in files.items() if labels.masks and path.startswith(f"{labels.masks}/")]
    if len(images) != shard.images or (labels.masks and len(masks) != shard.images):
        raise DataError(
            f"{record_path(out, TRAIN, shard.name)}: does not name {shard.images} images; remove it, and inflate again"
        )
    sha256 = record_sha256(out, TRAIN, shard.name)
    return f"{TRAIN}/{shard.name}", _Held(sha256, len(images), sum(images), sum(masks))
