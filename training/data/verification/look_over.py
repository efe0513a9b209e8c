"""Looks over a data set: its records, the names of its files and their sizes, without opening any of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from training.data.verification.damage import Damages
from training.data.verification.listing import ShardListing, ShardTask, list_shard
from training.data.verification.tree import find_extra_records, find_extras
from training.data.workers import Progress, map_ordered

_SHARDS_A_WORKER = 16  # fewer are listed sooner than a process starts


def look_over(
    out: Path, shards: Mapping[str, str | None], sizes: int | None, workers: int
) -> tuple[list[ShardListing], Damages]:
    """What the listings tell of shards, `<split>/<name>` with the SHA-256 of each one's record where that is known.

    `sizes` is how many files' sizes are looked up in each folder: None for all. Raises DataError.
    """
    tasks = [ShardTask(out, key, sha256, sizes) for key, sha256 in shards.items()]
    workers = min(workers, 1 + len(tasks) // _SHARDS_A_WORKER)
    progress, listings = Progress(len(tasks), "shards listed"), []
    for listing in map_ordered(list_shard, tasks, workers):
        listings.append(listing)
        progress.step()
    damages = Damages()
    damages.extend(listing.damages for listing in listings)
    lost = [listing.key for listing in listings if not listing.trusted and not listing.beyond]
    find_extras(out, listings, lost, damages)
    find_extra_records(out, shards, damages)
    return listings, damages
