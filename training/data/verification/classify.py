"""What happened to files whose content is not the one of their record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from training.data.names import is_image
from training.data.shards import read_record, shard_of, stored_file
from training.data.verification.content import Strange
from training.data.verification.damage import ALTERED, ALTERED_LABELS, SWAPPED, TRUNCATED, WRONG_SIZE, Damages
from training.data.workers import map_ordered

_PROBED = 3

Place = tuple[str, str]  # a shard's key and a path


def classify(out: Path, strange: list[Strange], shards: Iterable[str], workers: int, damages: Damages) -> None:
    """Adds each strange file to `damages`, and the other one of two that were exchanged.

    `shards` are those whose records can be gone by. Raises DataError.
    """
    homes = _homes(out, {one.found.digest for one in strange}, list(shards), workers)
    by_path = {one.path: one for one in strange}
    for one in strange:
        others = [place for place in homes.get(one.found.digest, []) if place[1] != one.path]
        if others:
            _add_swapped(out, one, others, by_path, damages)
        else:
            add_by_itself(one, damages)


def add_by_itself(one: Strange, damages: Damages) -> None:
    """Adds a strange file to `damages` by what it is itself, and what was recorded of it."""
    kind, detail = _told_by_itself(one)
    damages.add(kind, one.key, one.path, detail)


def _homes(out: Path, digests: set[str], shards: list[str], workers: int) -> dict[str, list[Place]]:
    """Which files should have these contents."""
    homes: dict[str, list[Place]] = {}
    if digests:
        for found in map_ordered(partial(_homes_in, out, digests), shards, workers):
            for digest, place in found:
                homes.setdefault(digest, []).append(place)
    return homes


def _homes_in(out: Path, digests: set[str], key: str) -> list[tuple[str, Place]]:
    record = read_record(out, *shard_of(key))
    files = record.files.items() if record else ()
    return [(stored.digest, (key, path)) for path, stored in files if stored.digest in digests]


def _add_swapped(out: Path, one: Strange, others: list[Place], by_path: dict[str, Strange], damages: Damages) -> None:
    key, path = next(_exchanged(out, one, others, by_path), ("", ""))
    if not path:
        damages.add(SWAPPED, one.key, one.path, f"has the content of {others[0][1]}")
        return
    damages.add(SWAPPED, one.key, one.path, f"was exchanged with {path}")
    if path not in by_path:
        damages.add(SWAPPED, key, path, f"was exchanged with {one.path}")


def _exchanged(out: Path, one: Strange, others: list[Place], by_path: dict[str, Strange]) -> Iterator[Place]:
    """Those of `others` that hold what `one` should."""
    yield from (place for place in others if place[1] in by_path and by_path[place[1]].found == one.recorded)
    for place in [place for place in others if place[1] not in by_path][:_PROBED]:
        path = out / place[1]
        if path.is_file() and stored_file(path) == one.recorded:
            yield place


def _told_by_itself(one: Strange) -> tuple[str, str]:
    is_shorter = one.found.bytes < one.recorded.bytes
    if is_shorter and not one.is_whole:
        return TRUNCATED, f"has {one.found.bytes:,} of {one.recorded.bytes:,} bytes"
    if one.size and one.expected_size and one.size != one.expected_size:
        was, now = ("x".join(map(str, size)) for size in (one.expected_size, one.size))
        return WRONG_SIZE, f"is {now} px instead of {was}"
    kind = ALTERED if is_image(one.path) else ALTERED_LABELS
    if one.found.bytes == one.recorded.bytes:
        return kind, f"has other content of the same {one.found.bytes:,} bytes"
    return kind, f"has other content, {one.found.bytes:,} bytes instead of {one.recorded.bytes:,}"
