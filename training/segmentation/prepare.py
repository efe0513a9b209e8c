"""Cityscapes as the segmentation program reads it: pairs of image and mask, a manifest, and what else would be read twice.

    python training/segmentation/prepare.py --cityscapes SRC --out OUT

writes the pairs of train and val as hard links (copies on another file system) under OUT/leftImg8bit and OUT/gtFine, the
list of them and where in the masks which class is under OUT/index, so that no node reads masks before a trial, and
OUT/manifest.json. The last line on stdout is a JSON object that sums up the training split.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.data.errors import DataError, exit_status
from training.data.files import building, can_link, link_or_copy
from training.data.manifest import (
    MANIFEST_FILE,
    SCHEMA,
    Manifest,
    SplitManifest,
    file_sha256,
    read_manifest,
    source_sha256,
)
from training.data.replace import check_replaceable
from training.data.workers import Progress
from training.segmentation.args import DEFAULT_TILE
from training.segmentation.centroids import open_centroids
from training.segmentation.dataset import PARTS, WORKLOAD, SegmentationSet, has_split
from training.segmentation.kept import INDEX_FOLDER
from training.segmentation.labels import CLASS_NAMES
from training.wire.schema import write_json

PREPARER = 1  # one more whenever the same source gives another result


def main() -> None:
    started_s = time.monotonic()
    options = _options()
    source, out = options.cityscapes.resolve(), options.out.resolve()
    splits = {
        name: SegmentationSet.open(source, name, 0, print) for name in ("train", "val") if has_split(source, name)
    }
    if "train" not in splits:
        raise DataError(f"{source} has no train split: no folders leftImg8bit/train and gtFine/train")
    check_replaceable(out, source, {*PARTS, INDEX_FOLDER}, WORKLOAD)

    fingerprint = source_sha256(source, [path for data in splits.values() for pair in _pairs(data) for path in pair])
    manifest = read_manifest(out, WORKLOAD)
    skipped = (
        manifest is not None
        and (manifest.converter, manifest.source_sha256) == (PREPARER, fingerprint)
        and _is_whole(out, manifest)
    )
    if manifest is None or not skipped:
        manifest = _build(source, splits, out, fingerprint)
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
        "warnings": [f"{name}: {left} left out" for name, data in splits.items() if (left := data.listing.left_out())],
    }
    print(json.dumps(summary), flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Prepares Cityscapes for the segmentation program.")
    parser.add_argument("--cityscapes", type=Path, required=True, help="the folder that holds leftImg8bit and gtFine")
    parser.add_argument("--out", type=Path, required=True, help="the folder to make, best on the same file system")
    return parser.parse_args()


def _pairs(data: SegmentationSet) -> list[tuple[Path, Path]]:
    return [(data.image(index), data.mask(index)) for index in range(len(data))]


def _build(source: Path, splits: dict[str, SegmentationSet], out: Path, fingerprint: str) -> Manifest:
    with building(out) as partial:
        everything = {name: _pairs(data) for name, data in splits.items()}
        files = [path for pairs in everything.values() for pair in pairs for path in pair]
        _check_room(files, partial, out)
        print(f"linking {len(files)} files of {source} into {out}", flush=True)
        progress = Progress(len(files), "files")
        held = {}
        for name, pairs in everything.items():
            data = splits[name]
            for image, mask in pairs:
                for path, part, folder in ((image, PARTS[0], data.images), (mask, PARTS[1], data.masks)):
                    target = partial / part / path.relative_to(folder)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    link_or_copy(path, target)
                    progress.step()
            held[name] = _summed_up(pairs)
        for name in splits:
            prepared = SegmentationSet.open(partial, name, 0, print, beside=True)
            if name == "train":
                open_centroids(prepared, DEFAULT_TILE, print, beside=True)
        manifest = Manifest(
            SCHEMA, WORKLOAD, PREPARER, str(source), fingerprint, list(CLASS_NAMES), held, annotations_sha256={}
        )
        write_json(partial / MANIFEST_FILE, manifest)
    return manifest


def _summed_up(pairs: list[tuple[Path, Path]]) -> SplitManifest:
    images, masks = (sum(path.stat().st_size for path in column) for column in zip(*pairs, strict=True))
    return SplitManifest(
        images=len(pairs), annotations=0, image_bytes=images, label_bytes=masks, width=None, height=None
    )


def _is_whole(out: Path, manifest: Manifest) -> bool:
    """Whether all pairs and indexes are there, with the sizes that the manifest gives."""
    for name, held in manifest.splits.items():
        if not has_split(out, name) or not (out / INDEX_FOLDER / f"{name}-files").is_dir():
            return False
        found = _summed_up(_pairs(SegmentationSet.open(out, name, 0, print)))
        if (found.images, found.image_bytes, found.label_bytes) != (held.images, held.image_bytes, held.label_bytes):
            return False
    return True


def _check_room(files: list[Path], partial: Path, out: Path) -> None:
    if can_link(files[0], partial):
        return
    need_bytes, free_bytes = sum(path.stat().st_size for path in files), shutil.disk_usage(partial).free
    if need_bytes > free_bytes:
        raise DataError(
            f"{out}: {free_bytes / 1e6:.0f} MB free, but the files to copy take {need_bytes / 1e6:.0f} MB; "
            "make room, or give an --out on the file system of the source, where they are hard-linked"
        )


if __name__ == "__main__":
    sys.exit(exit_status(main))
