"""Cityscapes as the segmentation program reads it: pairs of image and mask, a manifest, and what else would be read twice.

    python training/segmentation/prepare.py --cityscapes SRC --out OUT [--workers N]

writes the pairs of train and val as hard links (copies on another file system) under OUT/leftImg8bit and OUT/gtFine, the
list of them and where in the masks which class is under OUT/index, so that no node reads masks before a trial, the
files' digests under OUT/shards, and OUT/manifest.json. Where a frame has *_polygons.json and no *_labelIds.png, its mask is
drawn from them. It prints a table of what was read, kept and left out. The last line on stdout is a JSON object that sums up
the training split.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.data.conversion.cityscapes import LABELS, Split, read_splits, unread_frames
from training.data.conversion.left_out import no_usable, read_left_out, write_left_out
from training.data.conversion.table import check_has_train, tell
from training.data.errors import exit_status, room_needed_in
from training.data.files import building, placement
from training.data.manifest import (
    MANIFEST_FILE,
    SCHEMA,
    Generator,
    Manifest,
    file_sha256,
    library_versions,
    source_sha256,
    write_manifest,
)
from training.data.match import matching_manifest
from training.data.replace import check_replaceable
from training.data.shards import INDEX_SHARD, SHARDS_FOLDER, record_files, stored_below
from training.data.workers import Progress, available_cores
from training.segmentation.args import DEFAULT_TILE
from training.segmentation.centroids import open_centroids
from training.segmentation.dataset import PARTS, WORKLOAD, SegmentationSet
from training.segmentation.kept import INDEX_FOLDER
from training.segmentation.labels import CLASS_NAMES
from training.segmentation.placing import PlacedSplit, place_split

PROGRAM = "training/segmentation/prepare.py"
VERSION = 2  # one more whenever the same source and settings give another result
_LIBRARIES = ("numpy", "pillow", "cityscapesscripts")


def main() -> None:
    started_s = time.monotonic()
    options = _options()
    source, out = options.cityscapes.resolve(), options.out.resolve()
    splits = read_splits(source, LABELS)
    check_has_train(splits, source)
    used = (path for split in splits.values() for frame in split.frames for path in (frame.image, frame.truth))
    fingerprint = source_sha256(source, used)
    generator = Generator(PROGRAM, VERSION, settings={}, libraries={})
    manifest = matching_manifest(out, WORKLOAD, generator, fingerprint, options.workers, _say_why)
    skipped = manifest is not None
    if manifest is None:
        check_replaceable(out, source, {*PARTS, INDEX_FOLDER, SHARDS_FOLDER}, WORKLOAD)
        with room_needed_in(out):
            manifest = _build(source, splits, out, generator, fingerprint, options.workers)
    else:
        print(f"{out}: already prepared from these files, nothing to do")
    unusable = {name: read_left_out(out / _left_out_file(name)) for name in splits}
    warned = tell(manifest, splits, unusable, unread_frames(source, coarse=False, how=""))
    train = manifest.splits["train"]
    sample_bytes = train.image_bytes + train.label_bytes
    print(f"{train.images} pairs of train, {sample_bytes / 1e6:.0f} MB")
    summary = {
        "manifest_sha256": file_sha256(out / MANIFEST_FILE),
        "images": train.images,
        "image_bytes": train.image_bytes,
        "mean_image_bytes": round(sample_bytes / train.images),
        "skipped": skipped,
        "seconds": round(time.monotonic() - started_s, 3),
        "warnings": warned,
    }
    print(json.dumps(summary), flush=True)


def _left_out_file(split: str) -> str:
    """`index/train-left_out.json`: what was left out of a split, and why."""
    return f"{INDEX_FOLDER}/{split}-left_out.json"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prepares Cityscapes for the segmentation program.")
    parser.add_argument("--cityscapes", type=Path, required=True, help="the folder that holds leftImg8bit and gtFine")
    parser.add_argument("--out", type=Path, required=True, help="the folder to make, best on the same file system")
    parser.add_argument(
        "--workers", type=int, default=available_cores(), help="processes (default: the cores, %(default)s)"
    )
    options = parser.parse_args()
    if options.workers < 1:
        parser.error("--workers must be at least 1")
    return options


def _say_why(sentence: str) -> None:
    print(f"{sentence}: preparing anew", flush=True)


def _build(
    source: Path, splits: dict[str, Split], out: Path, generator: Generator, fingerprint: str, workers: int
) -> Manifest:
    with building(out) as partial:
        frames = [frame for split in splits.values() for frame in split.frames]
        how = placement([path for frame in frames for path in (frame.image, frame.truth)], partial, out, "files")
        print(f"preparing {len(frames)} pairs of {source} in {out} with {workers} workers; {how}", flush=True)
        progress = Progress(len(frames), "pairs")
        held, shards = {}, {}
        for name, split in splits.items():
            if split.frames:
                placed = place_split(name, split.frames, partial, workers, progress)
                held[name] = placed.held
                shards |= placed.shards | _indexed(source, partial, name, placed)
        generator = replace(generator, libraries=library_versions(*_LIBRARIES))
        categories = list(CLASS_NAMES)
        manifest = Manifest(SCHEMA, WORKLOAD, generator, str(source), fingerprint, categories, held, shards)
        return write_manifest(partial, manifest)


def _indexed(source: Path, out: Path, name: str, placed: PlacedSplit) -> dict[str, str]:
    """Writes what else would be worked out of a split again and again, and what was left out of it. Raises DataError."""
    if placed.held.images:
        prepared = SegmentationSet.open(out, name, 0, _say_nothing, beside=True)
        if len(prepared) != placed.held.images:
            raise RuntimeError(f"{name}: {placed.held.images} pairs were placed, and {len(prepared)} are listed")
        if name == "train":
            found = (placed.centroids[prepared.name(index)] for index in range(len(prepared)))
            known = ((np.full(len(classes), index), classes, at) for index, (classes, at) in enumerate(found))
            open_centroids(prepared, DEFAULT_TILE, _say_nothing, beside=True, known=lambda: known)
    elif name == "train":
        raise no_usable(source, placed.unusable)
    if placed.unusable:
        (out / INDEX_FOLDER).mkdir(exist_ok=True)
        write_left_out(out / _left_out_file(name), placed.unusable)
    index = sorted((out / INDEX_FOLDER).glob(f"{name}-*"))
    return record_files(out, name, INDEX_SHARD, stored_below(out, *index)) if index else {}


def _say_nothing(_: str) -> None:
    """For what comes at once and has the name of a folder that is moved."""


if __name__ == "__main__":
    sys.exit(exit_status(main))
