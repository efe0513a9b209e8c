"""Builds a converted data set beside its place and moves it there whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

from training.data.annotations import Converted, Task, coco_document, convert_frame
from training.data.categories import CATEGORIES
from training.data.cityscapes import Split
from training.data.errors import DataError
from training.data.files import building, can_link
from training.data.index import write_index
from training.data.index_places import index_folder
from training.data.manifest import (
    CONVERTER,
    MANIFEST_FILE,
    SCHEMA,
    WORKLOAD,
    Manifest,
    SplitManifest,
    annotations_file,
    file_sha256,
    split_folder,
)
from training.data.workers import Progress, map_ordered
from training.wire.schema import write_json

_NAMES = [name for name, _ in CATEGORIES.values()]


def build(source: Path, splits: dict[str, Split], out: Path, fingerprint: str, workers: int) -> Manifest:
    """Converts the frames of `splits` into `out` and gives its manifest. Raises DataError."""
    counts = " and ".join(f"{len(split.frames)} of {name}" for name, split in splits.items())
    with building(out) as partial:
        how = _placement(splits, partial, out)
        print(f"converting {counts} from {source} to {out} with {workers} workers; {how}", flush=True)
        progress = Progress(sum(len(split.frames) for split in splits.values()), "frames")
        held, hashes = {}, {}
        for name, split in splits.items():
            frames = list(_convert(split, partial / split_folder(name), workers, progress))
            document = coco_document(name, frames)
            if name == "train" and all(annotation["iscrowd"] for annotation in document["annotations"]):
                raise DataError(
                    f"{source}: no frame of train has an object to train on, that is one of {', '.join(_NAMES)}"
                )
            annotations = partial / annotations_file(name)
            annotations.parent.mkdir(exist_ok=True)
            annotations.write_text(json.dumps(document, separators=(",", ":")) + "\n", encoding="utf-8")
            hashes[name] = file_sha256(annotations)
            if not all(annotation["iscrowd"] for annotation in document["annotations"]):
                write_index(annotations, index_folder(annotations), workers)
            held[name] = _summed_up(frames)
        manifest = Manifest(SCHEMA, WORKLOAD, CONVERTER, str(source), fingerprint, _NAMES, held, hashes)
        write_json(partial / MANIFEST_FILE, manifest)
    return manifest


def _convert(split: Split, folder: Path, workers: int, progress: Progress) -> Iterator[Converted]:
    folder.mkdir()
    for city in {frame.city for frame in split.frames}:
        (folder / city).mkdir()
    for frame in map_ordered(convert_frame, [Task(frame, folder / frame.file_name) for frame in split.frames], workers):
        progress.step()
        yield frame


def _summed_up(frames: list[Converted]) -> SplitManifest:
    sizes = {(frame.width, frame.height) for frame in frames}
    width, height = sizes.pop() if len(sizes) == 1 else (None, None)
    return SplitManifest(
        images=len(frames),
        annotations=sum(len(frame.objects) for frame in frames),
        image_bytes=sum(frame.image_bytes for frame in frames),
        label_bytes=0,
        width=width,
        height=height,
    )


def _placement(splits: dict[str, Split], partial: Path, out: Path) -> str:
    images = [frame.image for split in splits.values() for frame in split.frames]
    if can_link(images[0], partial):
        return "frames are hard-linked and take no further space"
    need_bytes, free_bytes = sum(image.stat().st_size for image in images), shutil.disk_usage(partial).free
    if need_bytes > free_bytes:
        raise DataError(
            f"{out}: {free_bytes / 1e6:.0f} MB free, but the frames to copy take {need_bytes / 1e6:.0f} MB; "
            "make room, or give an --out on the file system of the source, where they are hard-linked"
        )
    return f"frames are copied, {need_bytes / 1e6:.0f} MB of {free_bytes / 1e6:.0f} MB free"
