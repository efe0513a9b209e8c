"""Cityscapes as the segmentation program reads it: pairs of image and mask, a manifest, and what else would be read twice.

    python training/segmentation/prepare.py --cityscapes SRC --out OUT [--workers N]

writes the pairs of train and val as hard links (copies on another file system) under OUT/leftImg8bit and OUT/gtFine, the
list of them and where in the masks which class is under OUT/index, so that no node reads masks before a trial, the
files' digests under OUT/shards, and OUT/manifest.json. Where a frame has *_polygons.json and no *_labelIds.png, its mask is
drawn from them. The last line on stdout is a JSON object that sums up the training split.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.data.conversion.cityscapes import LABELS, SPLITS, read_splits
from training.data.errors import DataError, exit_status
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
from training.segmentation.dataset import PARTS, WORKLOAD, SegmentationSet, has_split
from training.segmentation.kept import INDEX_FOLDER
from training.segmentation.labels import CLASS_NAMES
from training.segmentation.placing import place_split
from training.segmentation.sources import SourcePair, source_pairs

PROGRAM = "training/segmentation/prepare.py"
VERSION = 2  # one more whenever the same source and settings give another result
_LIBRARIES = ("numpy", "pillow", "cityscapesscripts")


def main() -> None:
    started_s = time.monotonic()
    options = _options()
    source, out = options.cityscapes.resolve(), options.out.resolve()
    names = [name for name in SPLITS if has_split(source, name)]
    if "train" not in names:
        raise DataError(f"{source} has no train split: no folders leftImg8bit/train and gtFine/train")
    read = read_splits(source, LABELS)
    splits, left_out = {}, {}
    for name in names:
        splits[name], left_out[name] = source_pairs(source, name, read[name], print)
    check_replaceable(out, source, {*PARTS, INDEX_FOLDER, SHARDS_FOLDER}, WORKLOAD)

    fingerprint = source_sha256(
        source, (path for pairs in splits.values() for pair in pairs for path in (pair.image, pair.truth))
    )
    generator = Generator(PROGRAM, VERSION, settings={}, libraries={})
    manifest = matching_manifest(out, WORKLOAD, generator, fingerprint, options.workers, _say_why)
    skipped = manifest is not None
    if manifest is None:
        manifest = _build(source, splits, out, generator, fingerprint, options.workers)
    else:
        print(f"{out}: already prepared from these files, nothing to do")
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
        "warnings": [f"{name}: {what} left out" for name, what in left_out.items() if what],
    }
    print(json.dumps(summary), flush=True)


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
    source: Path, splits: dict[str, list[SourcePair]], out: Path, generator: Generator, fingerprint: str, workers: int
) -> Manifest:
    with building(out) as partial:
        everything = [pair for pairs in splits.values() for pair in pairs]
        files = [path for pair in everything for path in (pair.image, pair.truth)]
        how = placement(files, partial, out, "files")
        print(f"preparing {len(everything)} pairs of {source} in {out} with {workers} workers; {how}", flush=True)
        progress = Progress(len(everything), "pairs")
        held, shards = {}, {}
        for name, pairs in splits.items():
            held[name], entries = place_split(name, pairs, partial, workers, progress)
            shards |= entries
        for name in splits:
            prepared = SegmentationSet.open(partial, name, 0, print, beside=True)
            if name == "train":
                open_centroids(prepared, DEFAULT_TILE, print, beside=True)
            index = sorted((partial / INDEX_FOLDER).glob(f"{name}-*"))
            shards |= record_files(partial, name, INDEX_SHARD, stored_below(partial, *index))
        generator = replace(generator, libraries=library_versions(*_LIBRARIES))
        categories = list(CLASS_NAMES)
        manifest = Manifest(SCHEMA, WORKLOAD, generator, str(source), fingerprint, categories, held, shards)
        return write_manifest(partial, manifest)


if __name__ == "__main__":
    sys.exit(exit_status(main))
