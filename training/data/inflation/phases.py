"""The phases: plan what is left, make it, finish."""

from __future__ import annotations

from dataclasses import replace

from training.data.errors import DataError
from training.data.inflation.base import mean_bytes_of
from training.data.inflation.finish import write_set
from training.data.inflation.inflation import VERSION, Inflation
from training.data.inflation.make import Maker
from training.data.inflation.place import remove_leftovers
from training.data.inflation.plan import SCHEMA, Plan, write_plan
from training.data.inflation.room import check_room
from training.data.inflation.survey import recorded, remove_records, survey
from training.data.inflation.tally import Tally, TallyProgress
from training.data.manifest import MANIFEST_FILE, Manifest
from training.data.match import matching_manifest
from training.data.memory import keep_freed_memory
from training.data.shards import shard_of
from training.data.workers import map_unordered


def whole_set(inflation: Inflation, known: Plan | None, workers: int) -> Manifest | None:
    """The manifest, where the set is there whole; else why not is told."""
    if known is None:
        return None
    generator = inflation.generator(known.noise)
    return matching_manifest(
        inflation.out, inflation.labels.workload, generator, inflation.base.sha256, workers,
        lambda why: print(f"{why}: going on", flush=True),
    )  # fmt: skip


def plan(inflation: Inflation, known: Plan | None, warnings: list[str]) -> Plan:
    """Looks what is left, checks the room, and writes the plan; known settlements stay. Raises DataError, OSError."""
    out = inflation.out
    remove_leftovers(out, inflation.labels.label_folders)
    found = survey(out, inflation.labels, inflation.shards, inflation.carried)
    if known is None:
        known = _settled(inflation, warnings)
    wanted = replace(known, shards=found.left)
    images = inflation.images_of(found.left)
    parts = 1 if inflation.labels.masks is None else 2
    check_room(out, left_bytes(inflation, wanted) - found.left_bytes, parts * images - found.left_files, images)
    write_plan(out, wanted)
    (out / MANIFEST_FILE).unlink(missing_ok=True)
    remove_records(out, recorded(out).intersection(found.left))
    print(
        f"{out}: {inflation.images - images:,} of {inflation.images:,} images are there, "
        f"{len(found.left):,} shards with {images:,} images to make",
        flush=True,
    )
    return wanted


def left_bytes(inflation: Inflation, plan: Plan) -> float:
    """About how much room the shards of a plan take, with what `finish` writes for them."""
    bytes_needed = inflation.images_of(plan.shards) * (plan.image_bytes + plan.label_bytes)
    if inflation.out.stat().st_dev != inflation.base.root.stat().st_dev:
        for key in set(plan.shards).intersection(inflation.carried):
            split, name = shard_of(key)
            bytes_needed += sum(file.bytes for file in inflation.base.records[split, name].files.values())
    return bytes_needed


def make(inflation: Inflation, plan: Plan, node: int, nodes: int, workers: int) -> tuple[int, int]:
    """Makes a node's part of the plan's shards, but those that are there; gives images and bytes. Raises DataError, OSError."""
    there = recorded(inflation.out)
    keys = [key for key in plan.shards[node::nodes] if key not in there]
    images = inflation.images_of(keys)
    tally = Tally()
    progress = TallyProgress(tally, images)
    if keys:
        keep_freed_memory()
        inflation.labels.load(inflation.base, inflation.settings.factor)
        maker = Maker(
            inflation.base, inflation.out, inflation.labels, inflation.settings, plan.noise, inflation.shards, tally
        )
        for _ in map_unordered(maker, keys, workers, progress.tell_if_due, tally.stop):
            pass
    progress.tell()
    return tally.counts()


def finish(inflation: Inflation, plan: Plan, workers: int, command: str) -> Manifest:
    """Writes the labels and the manifest of the set. Raises DataError where shards are missing, OSError."""
    out = inflation.out
    there = recorded(out)
    missing = [key for key in inflation.keys if key not in there]
    if missing:
        raise DataError(
            f"{out}: {len(missing):,} of {len(inflation.keys):,} shards are missing, the first {missing[0]}; make them first, "
            f"with --phase plan and make, or all at once with: {command}"
        )
    remove_leftovers(out, inflation.labels.label_folders)
    print(f"{out}: joining the labels of {len(inflation.shards):,} shards", flush=True)
    generator = inflation.generator(plan.noise)
    write_plan(out, replace(plan, shards=[]))
    return write_set(inflation.base, out, inflation.labels, generator, inflation.shards, workers)


def _settled(inflation: Inflation, warnings: list[str]) -> Plan:
    """A plan of no shards, with what is settled once."""
    base, labels, frames = inflation.base, inflation.labels, inflation.frames
    if inflation.settings.method == "copy":
        sizes = 0.0, mean_bytes_of(frames), labels.bytes_per_image(base, frames, [])
    else:
        from training.data.inflation.sample import expect  # imports torch, and copies need none

        print(f"{inflation.out}: measuring variants of some frames", flush=True)
        sizes = expect(base, labels, frames, inflation.settings, warnings.append)
    return Plan(SCHEMA, labels.program, VERSION, base.sha256, inflation.settings.as_text(), *sizes, shards=[])
