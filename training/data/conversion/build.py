"""Builds a converted data set beside its place and moves it there whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from training.data.conversion.annotations import Converted, Task, convert_frame
from training.data.conversion.categories import CATEGORIES
from training.data.conversion.cityscapes import Split
from training.data.conversion.coco_writer import CocoWriter
from training.data.conversion.left_out import Unusable, no_usable, write_left_out
from training.data.errors import DataError
from training.data.files import building, placement
from training.data.indexing.index import write_index
from training.data.indexing.index_places import index_folder
from training.data.manifest import (
    SCHEMA,
    WORKLOAD,
    Generator,
    Manifest,
    SplitManifest,
    annotations_file,
    left_out_file,
    library_versions,
    split_folder,
    write_manifest,
)
from training.data.memory import keep_freed_memory
from training.data.shards import ANNOTATIONS_SHARD, record_files, stored_below
from training.data.workers import Progress, map_ordered

_LIBRARIES = ("numpy", "pillow", "cityscapesscripts", "msgspec", "deflate", "pycocotools")
_NAMES = [name for name, _ in CATEGORIES.values()]


def build(
    source: Path,
    splits: dict[str, Split],
    out: Path,
    generator: Generator,
    fingerprint: str,
    segmentation: str,
    workers: int,
) -> Manifest:
    """Converts the frames of `splits` into `out` and gives its manifest. Raises DataError."""
    keep_freed_memory()
    counts = " and ".join(f"{len(split.frames)} of {name}" for name, split in splits.items())
    with building(out) as partial:
        images = [frame.image for split in splits.values() for frame in split.frames]
        how = placement(images, partial, out, "frames")
        print(f"converting {counts} from {source} to {out} with {workers} workers; {how}", flush=True)
        progress = Progress(sum(len(split.frames) for split in splits.values()), "frames")
        held, shards = {}, {}
        for name, split in splits.items():
            built = _Built(partial, name)
            built.convert(split, segmentation, workers, progress)
            if name == "train":
                _check_trainable(built, source)
            if built.trained:
                annotations = partial / annotations_file(name)
                write_index(annotations, index_folder(annotations), workers)
            built.record_annotations()
            held[name] = built.summed_up()
            shards |= built.shards
        generator = replace(generator, libraries=library_versions(*_LIBRARIES))
        manifest = Manifest(SCHEMA, WORKLOAD, generator, str(source), fingerprint, _NAMES, held, shards)
        return write_manifest(partial, manifest)


@dataclass
class _Built:
    """A split below `out`, while it is made. `shards` are its entries for the manifest, `sizes` the frames' in px."""

    out: Path
    split: str
    images: int = 0
    annotations: int = 0
    trained: int = 0
    image_bytes: int = 0
    sizes: set[tuple[int, int]] = field(default_factory=set)
    shards: dict[str, str] = field(default_factory=dict)
    unusable: dict[str, list[str]] = field(default_factory=dict)

    def convert(self, split: Split, segmentation: str, workers: int, progress: Progress) -> None:
        """Converts the frames of `split`, city after city."""
        folder, annotations = self.out / split_folder(self.split), self.out / annotations_file(self.split)
        annotations.parent.mkdir(exist_ok=True)
        cities = [folder / city for city in {frame.city for frame in split.frames}]
        for city in cities:
            city.mkdir(parents=True)
        tasks = (Task(frame, folder / frame.file_name, segmentation) for frame in split.frames)
        with CocoWriter(annotations, self.split) as writer:
            frames = self._usable(map_ordered(convert_frame, tasks, workers), progress)
            for name, converted in groupby(frames, key=lambda frame: frame.file_name.partition("/")[0]):
                files = {}
                for frame in converted:
                    writer.add(frame)
                    files[f"{folder.name}/{frame.file_name}"] = frame.stored
                    self.image_bytes += frame.stored.bytes
                    self.sizes.add((frame.width, frame.height))
                self.shards |= record_files(self.out, self.split, name, files)
        for emptied in (path for path in (*cities, folder) if path.is_dir() and not any(path.iterdir())):
            emptied.rmdir()
        self.images, self.annotations, self.trained = writer.images, writer.annotations, writer.trained

    def _usable(self, frames: Iterator[Converted | Unusable], progress: Progress) -> Iterator[Converted]:
        for frame in frames:
            progress.step()
            if isinstance(frame, Unusable):
                self.unusable.setdefault(frame.reason, []).append(frame.detail)
            else:
                yield frame

    def record_annotations(self) -> None:
        """Writes what was left out, and the record of that, the annotations and their index."""
        write_left_out(self.out / left_out_file(self.split), self.unusable)
        annotations = self.out / annotations_file(self.split)
        files = stored_below(self.out, annotations, index_folder(annotations), self.out / left_out_file(self.split))
        self.shards |= record_files(self.out, self.split, ANNOTATIONS_SHARD, files)

    def summed_up(self) -> SplitManifest:
        width, height = next(iter(self.sizes)) if len(self.sizes) == 1 else (None, None)
        return SplitManifest(self.images, self.annotations, self.image_bytes, 0, width, height)


def _check_trainable(train: _Built, source: Path) -> None:
    if not train.images:
        raise no_usable(source, train.unusable)
    if not train.trained:
        raise DataError(f"{source}: no frame of train has an object to train on, that is one of {', '.join(_NAMES)}")
