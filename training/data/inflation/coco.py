"""The labels of object detection: COCO annotations, moved with their pictures, one document a shard, joined at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from training.data.errors import DataError
from training.data.files import make_folder
from training.data.indexing.index_places import index_folder
from training.data.inflation.base import TRAIN, BaseSet, Frame, SourceFile, read_source
from training.data.inflation.boxes import Objects
from training.data.inflation.coco_join import join_documents
from training.data.inflation.labels import Content, Finished
from training.data.inflation.layout import Shard, frame_name
from training.data.manifest import ANNOTATIONS_FOLDER, WORKLOAD, annotations_file, split_folder
from training.data.shards import ANNOTATIONS_SHARD, record_files, stored_below

if TYPE_CHECKING:
    from training.data.inflation.augment import Change

_IMAGES = split_folder(TRAIN)
_DOCUMENTS = f"{ANNOTATIONS_FOLDER}/{_IMAGES}"
_ANNOTATION_BYTES = 120  # in a document
_WRITTEN_TIMES = 2.5  # in the shard's document, in that of the set, and in its index


def document_path(shard: Shard) -> str:
    """`annotations/train2017/<shard>.json`: the COCO document of a shard's images, with the ids of the whole set."""
    return f"{_DOCUMENTS}/{shard.name}.json"


@dataclass(frozen=True)
class _Source:
    """A frame's size in px and its annotations in the base set."""

    width: int
    height: int
    annotations: list[dict[str, Any]] = field(default_factory=list)


class CocoLabels:
    """Image ids count from 1 in the order of frames and variants, annotation ids from there, with gaps."""

    workload = WORKLOAD
    program = "training/ssd/inflate.py"
    maker = "training/data/convert.py"
    mean_mb = 2.88
    images = _IMAGES
    masks = None
    label_folders = (ANNOTATIONS_FOLDER,)

    def __init__(self) -> None:
        self._sources: dict[str, _Source] = {}
        self._categories: list[dict[str, Any]] = []
        self._factor = self._most = 0

    def frames(self, base: BaseSet) -> list[Frame]:
        return [
            Frame(frame_name(path), SourceFile(path, stored))
            for path, stored in sorted(base.files(TRAIN).items())
            if path.startswith(f"{_IMAGES}/")
        ]

    def check(self, base: BaseSet) -> None:
        if base.manifest.generator.settings.get("segmentation") == "none":
            raise DataError(
                f"{base.root}: its annotations have no masks to move boxes by; convert it with --segmentation rle, or give "
                "--method copy"
            )

    def load(self, base: BaseSet, factor: int) -> None:
        path = annotations_file(TRAIN)
        file = base.files(TRAIN).get(path)
        if file is None:
            raise DataError(f"{base.root}: no record has {path}; make the base set again with {self.maker}")
        document = msgspec.json.decode(read_source(base, SourceFile(path, file)))
        self._categories = document["categories"]
        by_id = {image["id"]: _Source(image["width"], image["height"]) for image in document["images"]}
        self._sources = {f"{_IMAGES}/{image['file_name']}": by_id[image["id"]] for image in document["images"]}
        for annotation in document["annotations"]:
            by_id[annotation["image_id"]].annotations.append(annotation)
        self._factor, self._most = factor, max((len(source.annotations) for source in by_id.values()), default=0)

    def begin(self, shard: Shard, frame: Frame) -> _ShardDocument:
        source = self._sources.get(frame.image.path)
        if source is None:
            raise DataError(f"{frame.image.path}: is not in the annotations of the base set; make it again")
        return _ShardDocument(shard, source, self._categories, self._factor, self._most)

    def bytes_per_image(self, base: BaseSet, frames: Sequence[Frame], changes: Sequence[Change]) -> float:
        del frames, changes
        train = base.manifest.splits[TRAIN]
        return _WRITTEN_TIMES * _ANNOTATION_BYTES * (1 + train.annotations / train.images)

    def is_carried(self, name: str) -> bool:
        del name
        return True

    def finish(self, out: Path, shards: Sequence[Shard], workers: int) -> Finished:
        path = out / annotations_file(TRAIN)
        make_folder(path.parent)
        annotations = join_documents([out / document_path(shard) for shard in shards], path, workers)
        files = stored_below(out, path, index_folder(path))
        return Finished(annotations, record_files(out, TRAIN, ANNOTATIONS_SHARD, files))


class _ShardDocument:
    def __init__(self, shard: Shard, source: _Source, categories: list[dict[str, Any]], factor: int, most: int) -> None:
        self._shard, self._source, self._categories, self._factor, self._most = shard, source, categories, factor, most
        self._objects: Objects | None = None
        self._images: list[dict[str, Any]] = []
        self._annotations: list[dict[str, Any]] = []

    def add(self, variant: int, image: str, change: Change | None) -> list[Content]:
        image_id = self._shard.frame * self._factor + variant + 1
        width, height = self._source.width, self._source.height
        name = image.removeprefix(f"{_IMAGES}/")
        self._images.append({"id": image_id, "file_name": name, "width": width, "height": height})
        first = (image_id - 1) * self._most + 1
        self._annotations += [
            {"id": first + number, "image_id": image_id, **_box(annotation)}
            for number, annotation in enumerate(self._source.annotations if change is None else self._moved(change))
        ]
        return []

    def rest(self) -> list[Content]:
        document = {"images": self._images, "annotations": self._annotations, "categories": self._categories}
        return [(document_path(self._shard), json.dumps(document, separators=(",", ":")).encode() + b"\n")]

    def _moved(self, change: Change) -> list[dict[str, Any]]:
        if self._objects is None:
            self._objects = Objects(self._source.annotations, self._source.width, self._source.height)
        return self._objects.moved(change.geometry)


def _box(annotation: dict[str, Any]) -> dict[str, Any]:
    return {key: annotation[key] for key in ("category_id", "bbox", "area", "iscrowd")}
