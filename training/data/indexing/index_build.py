"""From a COCO annotation file to arrays: blocks are parsed by several processes, and each is reduced at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from training.data.errors import DataError
from training.data.indexing.json_blocks import BLOCK_BYTES, Block, Outline, Record, outline
from training.data.workers import map_ordered

_SMALLEST_SIDE_PIXELS = 0.1  # DALI's readers.coco drops smaller boxes (size_threshold)
_SURROGATES = "surrogatepass"  # JSON can hold half of a surrogate pair


@dataclass(frozen=True, eq=False)
class Index:
    """The images of an annotation file that are trained on, in its order, each with its boxes in its order.

    `classes` and `category_ids` are in the order of the file's categories. `image_ids` is (n,) int64, `boxes` (m, 4)
    float32 left, top, right, bottom as fractions of the image, `labels` (m,) int32 class numbers from 1; image i has
    the boxes `box_offsets[i]` to `box_offsets[i + 1]`, of (n + 1,) int64. `names` holds the file names in UTF-8, name
    i at `name_offsets[i]` to `name_offsets[i + 1]`: first those of the n images, then those of images without a box.
    """

    classes: list[str]
    category_ids: list[int]
    image_ids: np.ndarray
    name_offsets: np.ndarray
    names: np.ndarray
    box_offsets: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray

    @property
    def images_without_box(self) -> int:
        return len(self.name_offsets) - 1 - len(self.image_ids)

    def name(self, place: int) -> str:
        """The file name at a place of `name_offsets`."""
        return bytes(self.names[self.name_offsets[place] : self.name_offsets[place + 1]]).decode("utf-8", _SURROGATES)


_Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
_Pixels = Annotated[float, Meta(gt=0)]


class _Image(msgspec.Struct, gc=False):
    """What is used of an image of the file; what does not fit has an `_image_problem`."""

    id: _Id
    file_name: Annotated[str, Meta(pattern=r"\A[^\0]+\Z")]
    width: _Pixels
    height: _Pixels


class _Object(msgspec.Struct, gc=False):
    """What is used of an annotation of the file; what does not fit has an `_object_problem`."""

    image_id: _Id
    category_id: _Id
    bbox: tuple[float, float, float, float]
    iscrowd: Any = None


@dataclass(frozen=True)
class _Images:
    """n images: `ids` (n,) int64, `sizes` (n, 2) float64 width and height in px, `names` in UTF-8."""

    ids: np.ndarray
    sizes: np.ndarray
    names: list[bytes]


@dataclass(frozen=True)
class _Objects:
    """k annotations: `images` and `categories` (k,) int64 ids, `boxes` (k, 4) float64 in px, `crowd` (k,) bool."""

    images: np.ndarray
    categories: np.ndarray
    boxes: np.ndarray
    crowd: np.ndarray


@dataclass(frozen=True)
class _Targets:
    """Boxes to train on: `rows` (k,) int32 places of their images, `boxes` (k, 4) float32, `labels` (k,) int32."""

    rows: np.ndarray
    boxes: np.ndarray
    labels: np.ndarray


def build_index(path: Path, workers: int, block_bytes: int = BLOCK_BYTES) -> tuple[Index, Outline]:
    """Reads an annotation file, `block_bytes` at a time, with `workers` processes.

    Left out are crowds, boxes smaller than 0.1 px a side and those outside their image, and images that have no other.
    Raises DataError for a file that cannot be read, is not JSON, breaks a rule of COCO's format
    (https://cocodataset.org/#format-data) or has no box to train on.
    """
    index, found = build_part(path, workers, block_bytes)
    if not len(index.boxes):
        raise DataError(
            f"{path} lists {index.images_without_box} images and none of them has a box: there is nothing to train on; "
            "convert a data set that has objects"
        )
    return index, found


def build_part(path: Path, workers: int, block_bytes: int = BLOCK_BYTES) -> tuple[Index, Outline]:
    """Like `build_index`, of a file with some of a set's images, of which none need have a box."""
    try:
        found = outline(path, block_bytes)
        _check_keys(path, found)
        categories = [record for block in found.arrays["categories"] for record in block.parse()]
        classes, category_ids = _classes(path, categories)
        images = _joined(list(_parsed(_images, path, found.arrays["images"], workers)))
        lookups = _Lookup(path, images.ids, "image"), _Lookup(path, np.array(category_ids, np.int64), "category")
        objects = _parsed(_objects, path, found.arrays["annotations"], workers)
        targets = [_targets(part, images.sizes, *lookups) for part in objects]
        status = path.stat()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; --data must name the folder above it") from error
    if (status.st_size, status.st_mtime_ns) != (found.bytes, found.mtime_ns):
        raise DataError(f"{path} changed while it was read; start again when it is complete")
    return _assembled(classes, category_ids, images, targets), found


def _check_keys(path: Path, found: Outline) -> None:
    for key in ("images", "annotations", "categories"):
        if found.keys.count(key) > 1:
            raise DataError(f"{path} has the key {key!r} {found.keys.count(key)} times; leave one of them")
        if key not in found.arrays:
            what = "is no list" if key in found.keys else "is missing"
            raise DataError(f"{path} is not a COCO annotation file: {key!r} {what}; --data must name a prepared set")


def _classes(path: Path, categories: list[Any]) -> tuple[list[str], list[int]]:
    if not categories:
        raise DataError(f"{path} names no categories; convert the data set again")
    if problem := next(filter(None, map(_category_problem, categories)), None):
        raise _refusal(path, problem)
    names, ids = [record["name"] for record in categories], [record["id"] for record in categories]
    for kind, values in (("id", ids), ("name", names)):
        if len(set(values)) < len(values):
            raise _refusal(path, f"two categories have the {kind} {max(values, key=values.count)!r}")
    return names, ids


def _parsed(reduce: Callable[[Block], Any], path: Path, blocks: list[Block], workers: int) -> Iterator[Any]:
    try:
        yield from map_ordered(reduce, blocks, workers)
    except DataError as error:
        if isinstance(error.__cause__, BrokenProcessPool):
            raise DataError(f"{path}: a process that parsed it was killed (out of memory?); free memory") from error
        raise


def _images(block: Block) -> _Images:
    records = _records(block, _Image, _image_problem)
    return _Images(
        np.array([record.id for record in records], np.int64),
        np.array([(record.width, record.height) for record in records], np.float64).reshape(-1, 2),
        [record.file_name.encode("utf-8", _SURROGATES) for record in records],
    )


def _objects(block: Block) -> _Objects:
    records = _records(block, _Object, _object_problem)
    sides = chain.from_iterable([record.bbox for record in records])
    return _Objects(
        np.array([record.image_id for record in records], np.int64),
        np.array([record.category_id for record in records], np.int64),
        np.fromiter(sides, np.float64, 4 * len(records)).reshape(-1, 4),
        np.array([bool(record.iscrowd) for record in records], np.bool_),
    )


def _records(block: Block, kind: type[Record], problem: Callable[[Any], str | None]) -> list[Record]:
    """The elements of a block. Raises DataError with the first problem that one has."""
    if (records := block.parse_as(kind)) is not None:
        return records
    parsed = block.parse()
    if found := next(filter(None, map(problem, parsed)), None):
        raise _refusal(block.path, found)
    used = [{key: record[key] for key in kind.__struct_fields__ if key in record} for record in parsed]
    return msgspec.convert(used, list[kind])


def _category_problem(record: Any) -> str | None:
    if not isinstance(record, dict):
        return f"the category {record!r} is no object"
    if not _is_id(record.get("id")):
        return f"the category {record.get('name')!r} has the id {record.get('id')!r}, which is no integer of 64 bits"
    if not isinstance(record.get("name"), str) or not record["name"]:
        return f"the category {record['id']} has no name"
    return None


def _image_problem(record: Any) -> str | None:
    if not isinstance(record, dict):
        return f"the image {record!r} is no object"
    name = record.get("file_name")
    if not _is_id(record.get("id")):
        return f"the image {name!r} has the id {record.get('id')!r}, which is no integer of 64 bits"
    if not isinstance(name, str) or not name or "\0" in name:
        return f"the image {record['id']} has the file_name {name!r}, which names no file"
    for key in ("width", "height"):
        if not _is_finite(record.get(key)) or record[key] <= 0:
            return f"the image {name} has the {key} {record.get(key)!r}, which is no number of pixels above 0"
    return None


def _object_problem(record: Any) -> str | None:
    if not isinstance(record, dict):
        return f"the annotation {record!r} is no object"
    for key in ("image_id", "category_id"):
        if not _is_id(record.get(key)):
            return (
                f"the annotation {record.get('id')!r} has the {key} {record.get(key)!r}, which is no integer of 64 bits"
            )
    box = record.get("bbox")
    if not isinstance(box, list) or len(box) != 4 or not all(map(_is_finite, box)):
        return f"the annotation {record.get('id')!r} has the bbox {box!r}, which is not four finite numbers"
    return None


def _is_id(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _is_finite(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer beyond every float
        return False


def _refusal(path: Path, problem: str) -> DataError:
    return DataError(f"{path}: {problem}; correct it, or convert the data set again")


class _Lookup:
    """Finds the places of ids, which must be distinct."""

    def __init__(self, path: Path, ids: np.ndarray, what: str) -> None:
        self._path, self._what = path, what
        self._order = np.argsort(ids, kind="stable").astype(np.int32)
        self._ids = ids[self._order]
        twice = np.flatnonzero(self._ids[1:] == self._ids[:-1])
        if len(twice):
            raise _refusal(path, f"two {what}s have the id {self._ids[twice[0]]}")

    def places(self, ids: np.ndarray) -> np.ndarray:
        """(k,) int32 places of (k,) ids. Raises DataError for an id that is not there."""
        at = np.searchsorted(self._ids, ids).clip(max=len(self._ids) - 1)
        unknown = np.flatnonzero(self._ids[at] != ids) if len(self._ids) else np.arange(len(ids))
        if len(unknown):
            raise _refusal(self._path, f"an annotation names the {self._what} {ids[unknown[0]]}, which is not listed")
        return self._order[at]


def _joined(parts: list[_Images]) -> _Images:
    return _Images(
        np.concatenate([part.ids for part in parts]),
        np.concatenate([part.sizes for part in parts]),
        list(chain.from_iterable(part.names for part in parts)),
    )


def _targets(objects: _Objects, sizes: np.ndarray, images: _Lookup, categories: _Lookup) -> _Targets:
    rows, labels = images.places(objects.images), categories.places(objects.categories) + 1
    corner, sides = objects.boxes[:, :2], objects.boxes[:, 2:]
    with np.errstate(over="ignore"):  # what ends beyond every float is clipped like what ends outside
        corners = np.stack([corner, corner + sides], axis=1) / sizes[rows, np.newaxis]
    boxes = corners.clip(0, 1).astype(np.float32)
    has_area = (boxes[:, 1] > boxes[:, 0]).all(axis=1)
    used = ~objects.crowd & (sides >= _SMALLEST_SIDE_PIXELS).all(axis=1) & has_area
    return _Targets(rows[used], boxes[used].reshape(-1, 4), labels[used].astype(np.int32))


def _assembled(classes: list[str], category_ids: list[int], images: _Images, targets: list[_Targets]) -> Index:
    rows = np.concatenate([part.rows for part in targets])
    boxes = np.concatenate([part.boxes for part in targets])
    labels = np.concatenate([part.labels for part in targets])
    targets.clear()
    if (rows[1:] < rows[:-1]).any():
        order = np.argsort(rows, kind="stable")
        boxes, labels = boxes[order], labels[order]
    counts = np.bincount(rows, minlength=len(images.ids))
    has_box = counts > 0
    names = [images.names[i] for i in chain(np.flatnonzero(has_box), np.flatnonzero(~has_box))]
    return Index(
        classes=classes,
        category_ids=category_ids,
        image_ids=images.ids[has_box],
        name_offsets=_offsets(np.fromiter(map(len, names), np.int64, len(names))),
        names=np.frombuffer(b"".join(names), np.uint8),
        box_offsets=_offsets(counts[has_box]),
        boxes=boxes,
        labels=labels,
    )


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
