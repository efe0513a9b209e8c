"""Cityscapes to the COCO layout that the SSD program reads.

    python training/data/convert.py --cityscapes SRC --out OUT [--workers N]

writes OUT/annotations/instances_{train,val}2017.json with the index of each in instances_{train,val}2017.index/, the
frames as hard links (copies on another file system) under OUT/{train,val}2017/<city>/, and OUT/manifest.json. The last
line on stdout is a JSON object that sums up the training split.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.data.cityscapes import SPLITS, Split, read_splits
from training.data.errors import DataError, exit_status
from training.data.files import building
from training.data.index_places import index_folder
from training.data.manifest import (
    ANNOTATIONS_FOLDER,
    CONVERTER,
    MANIFEST_FILE,
    WORKLOAD,
    Manifest,
    annotations_file,
    file_sha256,
    is_whole,
    read_manifest,
    source_sha256,
    split_folder,
)
from training.data.replace import check_replaceable
from training.data.workers import available_cores


def main() -> None:
    started_s = time.monotonic()
    options = _options()
    source, out = options.cityscapes.resolve(), options.out.resolve()
    splits = read_splits(source)
    warnings = _warnings(splits)
    if not splits["train"].frames:
        raise DataError(f"{source}: no frame of train has both a picture and ground truth; {warnings[0]}")
    check_replaceable(out, source, {ANNOTATIONS_FOLDER, *map(split_folder, SPLITS)}, WORKLOAD)

    used = [path for split in splits.values() for frame in split.frames for path in (frame.image, frame.truth)]
    fingerprint = source_sha256(source, used)
    manifest = read_manifest(out)
    skipped = (
        manifest is not None
        and (manifest.converter, manifest.source_sha256) == (CONVERTER, fingerprint)
        and is_whole(out, manifest)
    )
    if manifest is None or not skipped:
        # Not at the top: it takes longer to import than a data set that is already there takes to check.
        from training.data.build import build

        manifest = build(source, splits, out, fingerprint, options.workers)
    else:
        print(f"{out}: already converted from these files, nothing to do")
        _index_where_missing(out / annotations_file("train"), options.workers)
    _report(out, manifest, splits, warnings, skipped, time.monotonic() - started_s)


def _index_where_missing(annotations: Path, workers: int) -> None:
    """For data sets of earlier releases. Training does without, and more slowly."""
    folder = index_folder(annotations)
    if folder.exists():
        return
    from training.data.index import write_index  # as above

    try:
        with building(folder) as partial:
            write_index(annotations, partial, workers)
    except OSError as error:
        print(f"{folder}: cannot be made ({error.strerror}); each node that trains will make its own")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Converts Cityscapes to the COCO layout of the SSD program.")
    parser.add_argument("--cityscapes", type=Path, required=True, help="the folder that holds leftImg8bit and gtFine")
    parser.add_argument("--out", type=Path, required=True, help="the folder to make, best on the same file system")
    parser.add_argument(
        "--workers", type=int, default=available_cores(), help="processes (default: the cores, %(default)s)"
    )
    options = parser.parse_args()
    if options.workers < 1:
        parser.error("--workers must be at least 1")
    return options


def _warnings(splits: dict[str, Split]) -> list[str]:
    warnings = []
    for name, split in splits.items():
        for reason, paths in split.left_out.items():
            warnings.append(f"{name}: {len(paths)} {reason} left out, the first {paths[0]}")
        if not split.frames:
            warnings.append(f"{name}: no frames" + ("; validation has nothing to measure" if name == "val" else ""))
    return warnings


def _report(
    out: Path, manifest: Manifest, splits: dict[str, Split], warnings: list[str], skipped: bool, seconds: float
) -> None:
    reasons = sorted({reason for split in splits.values() for reason in split.left_out})
    rows = {
        "frames": [split.images for split in manifest.splits.values()],
        "objects, groups included": [split.annotations for split in manifest.splits.values()],
        "MB of frames": [round(split.image_bytes / 1e6) for split in manifest.splits.values()],
        **{
            f"left out: {reason}": [len(split.left_out.get(reason, [])) for split in splits.values()]
            for reason in reasons
        },
    }
    width = max(map(len, rows))
    print(f"{'':{width}}" + "".join(f"{name:>9}" for name in splits))
    for row, values in rows.items():
        print(f"{row:{width}}" + "".join(f"{value:9}" for value in values))
    for warning in warnings:
        print(f"warning: {warning}")
    train = manifest.splits["train"]
    summary = {
        "manifest_sha256": file_sha256(out / MANIFEST_FILE),
        "images": train.images,
        "image_bytes": train.image_bytes,
        "mean_image_bytes": round(train.image_bytes / train.images),
        "skipped": skipped,
        "seconds": round(seconds, 3),
        "warnings": warnings,
    }
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    sys.exit(exit_status(main))
