"""The labels of segmentation in an inflated set: masks moved with their pictures, and where in them which class is."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from training.common.errors import UserError
from training.data.errors import DataError
from training.data.inflation.base import TRAIN, BaseSet, Frame, SourceFile, read_source
from training.data.inflation.geometry import move_mask
from training.data.inflation.labels import Content, Finished
from training.data.inflation.layout import Shard, frame_name
from training.data.shards import INDEX_SHARD, record_files, stored_below
from training.segmentation.args import DEFAULT_TILE
from training.segmentation.centroid_files import Found
from training.segmentation.centroids import mask_centroids, open_centroids
from training.segmentation.dataset import PARTS, WORKLOAD, SegmentationSet, decode_mask, has_split
from training.segmentation.kept import INDEX_FOLDER
from training.segmentation.labels import check_ids

if TYPE_CHECKING:
    from training.data.inflation.augment import Change

_IMAGES, _MASKS = (f"{part}/{TRAIN}" for part in PARTS)
_IMAGE_END, _MASK_END = "_leftImg8bit", "_gtFine_labelIds.png"
_CENTROIDS = f"{INDEX_FOLDER}/{TRAIN}-shards"
_CENTROIDS_BYTES = 400  # of an image, in the shard's file and in that of the set


def centroids_path(shard: Shard) -> str:
    """`index/train-shards/<shard>.npy`: (k, 4) uint16 variant from the shard's first, class, row and column in px."""
    return f"{_CENTROIDS}/{shard.name}.npy"


class MaskLabels:
    workload = WORKLOAD
    program = "training/segmentation/inflate.py"
    maker = "training/segmentation/prepare.py"
    mean_mb = 2.67
    images = _IMAGES
    masks = _MASKS
    label_folders = (INDEX_FOLDER,)

    def __init__(self) -> None:
        self._base: BaseSet | None = None

    def frames(self, base: BaseSet) -> list[Frame]:
        files = base.files(TRAIN)
        masks = {
            path.removesuffix(_MASK_END).rpartition("/")[2]: SourceFile(path, stored)
            for path, stored in files.items()
            if path.startswith(f"{_MASKS}/") and path.endswith(_MASK_END)
        }
        images = [SourceFile(path, stored) for path, stored in files.items() if path.startswith(f"{_IMAGES}/")]
        names = [frame_name(image.path) for image in images]
        return [Frame(name, image, masks[name]) for name, image in zip(names, images, strict=True)]

    def check(self, base: BaseSet) -> None:
        """Masks always can be moved."""

    def load(self, base: BaseSet, factor: int) -> None:
        del factor
        self._base = base

    def begin(self, shard: Shard, frame: Frame) -> _ShardMasks:
        assert self._base is not None
        return _ShardMasks(self._base, shard, frame)

    def bytes_per_image(self, base: BaseSet, frames: Sequence[Frame], changes: Sequence[Change]) -> float:
        from training.data.inflation.encode import encode_png

        masks = [frame.mask for frame in frames if frame.mask]
        sizes = [mask.stored.bytes for mask in masks]
        if changes:
            pixels = [_read(base, mask)[1] for mask in masks]
            moved = map(move_mask, pixels, (change.geometry for change in changes))
            sizes = [len(encode_png(mask)) for mask in moved]
        return _CENTROIDS_BYTES + sum(sizes) / len(sizes)

    def is_carried(self, name: str) -> bool:
        """An index depends on the dates of folders, so that it is made here."""
        return name != INDEX_SHARD

    def finish(self, out: Path, shards: Sequence[Shard], workers: int) -> Finished:
        del workers
        entries: dict[str, str] = {}
        for split in ("train", "val"):
            if not has_split(out, split):
                continue
            names = ("files", f"centroids-{DEFAULT_TILE}") if split == TRAIN else ("files",)
            places = [out / INDEX_FOLDER / f"{split}-{name}" for name in names]
            for place in places:
                if place.exists():  # one that can be loaded need not be right
                    shutil.rmtree(place)
            data = SegmentationSet.open(out, split, 0, print, beside=True)
            if split == TRAIN:
                open_centroids(data, DEFAULT_TILE, print, beside=True, known=lambda of=data: _known(out, of, shards))
            entries |= record_files(out, split, INDEX_SHARD, stored_below(out, *places))
        return Finished(annotations=0, shards=entries)


class _ShardMasks:
    def __init__(self, base: BaseSet, shard: Shard, frame: Frame) -> None:
        assert frame.mask is not None
        self._shard = shard
        self._content, self._mask = _read(base, frame.mask)
        self._own_centroids = mask_centroids(self._mask, DEFAULT_TILE)
        self._found: list[np.ndarray] = []

    def add(self, variant: int, image: str, change: Change | None) -> list[Content]:
        from training.data.inflation.encode import encode_png

        content, centroids = self._content, self._own_centroids
        if change is not None:
            mask = move_mask(self._mask, change.geometry)
            content, centroids = encode_png(mask), mask_centroids(mask, DEFAULT_TILE)
        classes, places = centroids
        numbers = np.full((len(classes), 1), variant - self._shard.first, np.uint16)
        self._found.append(np.hstack([numbers, classes[:, None].astype(np.uint16), places]))
        name = image.rpartition("/")[2].rpartition(_IMAGE_END)[0]
        return [(f"{_MASKS}/{self._shard.name}/{name}{_MASK_END}", content)]

    def rest(self) -> list[Content]:
        file = io.BytesIO()
        np.save(file, np.concatenate(self._found))
        return [(centroids_path(self._shard), file.getvalue())]


def _read(base: BaseSet, file: SourceFile) -> tuple[bytes, np.ndarray]:
    """A mask's file and its label ids. Raises DataError."""
    content, path = read_source(base, file), base.root / file.path
    try:
        mask = decode_mask(content, path)
        check_ids(np.flatnonzero(np.bincount(mask.ravel(), minlength=256)), str(path))
    except UserError as error:
        raise DataError(str(error)) from error
    return content, mask


def _known(out: Path, data: SegmentationSet, shards: Sequence[Shard]) -> Iterator[Found]:
    """What the shards have kept, in the order in which their images are listed."""
    first = 0
    for shard in sorted(shards, key=lambda shard: shard.name):
        end = first + shard.images
        if end > len(data) or not all(data.name(at).startswith(f"{TRAIN}/{shard.name}/") for at in (first, end - 1)):
            raise DataError(f"{out}: the folder of {shard.name} does not hold {shard.images} pairs; inflate again")
        path = out / centroids_path(shard)
        try:
            rows = np.load(path, allow_pickle=False)
        except ValueError as error:
            raise DataError(f"{path}: is damaged; remove the record of {shard.name}, and inflate again") from error
        yield (first + rows[:, 0].astype(np.int32)), rows[:, 1].astype(np.uint8), rows[:, 2:]
        first = end
