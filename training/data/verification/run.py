"""A verification from the manifest to the files' content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.data.inflation.plan import readable_plan
from training.data.manifest import MANIFEST_FILE
from training.data.shards import record_path, shard_of
from training.data.verification.choice import choose
from training.data.verification.classify import add_by_itself, classify
from training.data.verification.content import FILES_A_TASK, ContentTask, Strange, read_content
from training.data.verification.damage import MANIFEST, Damages
from training.data.verification.listing import ShardListing
from training.data.verification.look_over import look_over
from training.data.verification.subject import Subject, read_subject
from training.data.workers import Progress, map_ordered

_COMPARED = 100_000  # of more files that are damaged, it is not found out which ones were exchanged


@dataclass(frozen=True)
class Verified:
    """`files` and `size_bytes` are what the records tell of, `read_files` and `read_bytes` what was read of it.

    `hard_links` are damaged files that have other names, too.
    """

    subject: Subject
    damages: Damages
    files: int
    size_bytes: int
    read_files: int
    read_bytes: int
    hard_links: int


def verify(out: Path, sample_files: int | None, seed: int, workers: int) -> Verified:
    """Compares a data set with its manifest and records, and reads `sample_files` files drawn with `seed`, None for all.

    Raises DataError for a folder that cannot be verified.
    """
    damages = Damages()
    subject = read_subject(out, damages)
    listings, seen = look_over(out, subject.shards, None, workers)
    damages.extend([seen])
    _compare_totals(subject, listings, damages)
    trusted = [listing for listing in listings if listing.trusted]
    chosen = choose(trusted, sample_files, seed, damages)
    strange, read_files, read_bytes = _read(subject, chosen, workers, damages)
    classify(out, strange, chosen, workers, damages)
    return Verified(
        subject,
        damages,
        files=sum(listing.files for listing in listings),
        size_bytes=sum(listing.size_bytes for listing in listings),
        read_files=read_files,
        read_bytes=read_bytes,
        hard_links=sum(one.links > 1 for one in strange),
    )


def _compare_totals(subject: Subject, listings: Sequence[ShardListing], damages: Damages) -> None:
    """Whether the records add up to what the manifest says of each split."""
    if not (subject.manifest and subject.is_sound) or not all(listing.trusted for listing in listings):
        return
    for split, held in subject.manifest.splits.items():
        of_it = [listing for listing in listings if listing.key.startswith(f"{split}/")]
        images, image_bytes, mask_bytes = (
            sum(getattr(listing, name) for listing in of_it) for name in ("images", "image_bytes", "mask_bytes")
        )
        if (images, image_bytes, mask_bytes) != (held.images, held.image_bytes, held.label_bytes):
            damages.add(
                MANIFEST, "", MANIFEST_FILE, f"counts {held.images:,} images of {split}, and the records {images:,}"
            )


def _read(
    subject: Subject, chosen: dict[str, Sequence[int]], workers: int, damages: Damages
) -> tuple[list[Strange], int, int]:
    tasks = [
        ContentTask(subject.out, key, places[start : start + FILES_A_TASK], subject.size(key))
        for key, places in chosen.items()
        for start in range(0, len(places), FILES_A_TASK)
    ]
    progress = Progress(sum(map(len, chosen.values())), "files read")
    strange: list[Strange] = []
    files = size_bytes = 0
    for read in map_ordered(read_content, tasks, workers):
        files, size_bytes = files + read.files, size_bytes + read.size_bytes
        progress.step(read.files, read.size_bytes)
        damages.extend([read.damages])
        strange += read.strange
        while len(strange) > _COMPARED:
            add_by_itself(strange.pop(), damages)
    return strange, files, size_bytes


def drop(verified: Verified) -> int:
    """Removes the records of damaged shards, and how many these were; of an inflated set also its manifest, if it has a plan.

    Then the program that made the set takes it for unfinished. Raises OSError.
    """
    out, manifest = verified.subject.out, verified.subject.manifest
    keys = verified.damages.shards()
    for key in keys:
        record_path(out, *shard_of(key)).unlink(missing_ok=True)
    is_inflated = manifest is not None and Path(manifest.generator.program).name == "inflate.py"
    if is_inflated and verified.damages.is_harm() and readable_plan(out):
        (out / MANIFEST_FILE).unlink(missing_ok=True)
    return len(keys)
