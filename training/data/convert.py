"""Cityscapes to the COCO layout that the SSD program reads.

    python training/data/convert.py --cityscapes SRC --out OUT [--truth auto|instances|polygons] [--coarse]
                                    [--segmentation rle|polygons|none] [--workers N]

writes OUT/annotations/instances_{train,val}2017.json with the index of each in instances_{train,val}2017.index/, the
frames as hard links (copies on another file system) under OUT/{train,val}2017/<city>/, the files' digests under
OUT/shards, and OUT/manifest.json. It prints a table of what was read, kept and left out. The last line on stdout is a
JSON object that sums up the training split.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.data.conversion.cityscapes import AUTO, INSTANCES, POLYGONS, SPLITS, read_splits, unread_frames
from training.data.conversion.left_out import read_left_out
from training.data.conversion.table import Unread, check_has_train, tell
from training.data.errors import exit_status, room_needed_in
from training.data.manifest import (
    ANNOTATIONS_FOLDER,
    MANIFEST_FILE,
    WORKLOAD,
    Generator,
    SplitManifest,
    file_sha256,
    left_out_file,
    source_sha256,
    split_folder,
)
from training.data.match import matching_manifest
from training.data.replace import check_replaceable
from training.data.shards import SHARDS_FOLDER
from training.data.workers import available_cores

PROGRAM = "training/data/convert.py"
VERSION = 2  # one more whenever the same source and settings give another result


def main() -> None:
    started_s = time.monotonic()
    options = _options()
    source, out = options.cityscapes.resolve(), options.out.resolve()
    splits = read_splits(source, options.truth, options.coarse)
    check_has_train(splits, source)
    used = (path for split in splits.values() for frame in split.frames for path in (frame.image, frame.truth))
    fingerprint = source_sha256(source, used)
    generator = Generator(PROGRAM, VERSION, _settings(options), libraries={})
    manifest = matching_manifest(out, WORKLOAD, generator, fingerprint, options.workers, _say_why)
    skipped = manifest is not None
    if manifest is None:
        check_replaceable(out, source, {ANNOTATIONS_FOLDER, SHARDS_FOLDER, *map(split_folder, SPLITS)}, WORKLOAD)
        # Not at the top: it takes longer to import than a data set that is already there takes to check.
        from training.data.conversion.build import build

        with room_needed_in(out):
            manifest = build(source, splits, out, generator, fingerprint, options.segmentation, options.workers)
    else:
        print(f"{out}: already converted from these files, nothing to do")
    unusable: Unread = {name: read_left_out(out / left_out_file(name)) for name in splits}
    warned = tell(manifest, splits, unusable, unread_frames(source, options.coarse))
    _sum_up(out, manifest.splits["train"], skipped, time.monotonic() - started_s, warned)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Converts Cityscapes to the COCO layout of the SSD program.")
    parser.add_argument("--cityscapes", type=Path, required=True, help="the folder that holds leftImg8bit and gtFine")
    parser.add_argument("--out", type=Path, required=True, help="the folder to make, best on the same file system")
    parser.add_argument(
        "--truth",
        choices=(AUTO, INSTANCES, POLYGONS),
        default=AUTO,
        help="read *_instanceIds.png or *_polygons.json only (default: auto, the latter where a frame lacks the former)",
    )
    parser.add_argument(
        "--coarse",
        action="store_true",
        help="add the frames of train_extra to train, and use gtCoarse where a frame has no gtFine",
    )
    parser.add_argument(
        "--segmentation",
        choices=("rle", "polygons", "none"),
        default="rle",
        help="how the pixels of objects are told; groups are always RLE (default: %(default)s; none: boxes only)",
    )
    parser.add_argument(
        "--workers", type=int, default=available_cores(), help="processes (default: the cores, %(default)s)"
    )
    options = parser.parse_args()
    if options.workers < 1:
        parser.error("--workers must be at least 1")
    return options


def _settings(options: argparse.Namespace) -> dict[str, str]:
    coarse = "yes" if options.coarse else "no"
    return {"truth": options.truth, "coarse": coarse, "segmentation": options.segmentation}


def _say_why(sentence: str) -> None:
    print(f"{sentence}: converting anew", flush=True)


def _sum_up(out: Path, train: SplitManifest, skipped: bool, seconds: float, warned: list[str]) -> None:
    summary = {
        "manifest_sha256": file_sha256(out / MANIFEST_FILE),
        "images": train.images,
        "image_bytes": train.image_bytes,
        "mean_image_bytes": round(train.image_bytes / train.images),
        "skipped": skipped,
        "seconds": round(seconds, 3),
        "warnings": warned,
    }
    print(json.dumps(summary), flush=True)


if __name__ == "__main__":
    sys.exit(exit_status(main))
