"""Puts the pairs of a split in place in a prepared set, and records them by city."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from training.data.conversion.truth import draw_label_ids
from training.data.errors import DataError
from training.data.files import link_or_copy
from training.data.manifest import SplitManifest
from training.data.pictures import picture_size
from training.data.shards import StoredFile, record_files, stored_file
from training.data.workers import Progress, map_ordered
from training.segmentation.sources import SourcePair


@dataclass(frozen=True)
class _Placed:
    """What was put in place. `width` and `height` in px."""

    image: StoredFile
    mask: StoredFile
    width: int
    height: int


def place_split(
    split: str, pairs: list[SourcePair], out: Path, workers: int, progress: Progress
) -> tuple[SplitManifest, dict[str, str]]:
    """Links or copies images and masks into `out`, and draws the masks that are polygons.

    Gives what the split holds, and the entries of its shards. Raises DataError for files that cannot be used.
    """
    for pair in pairs:
        for name in (pair.image_name, pair.mask_name):
            (out / name).parent.mkdir(parents=True, exist_ok=True)
    placed = []
    shards: dict[str, dict[str, StoredFile]] = {}
    for pair, one in zip(pairs, map_ordered(partial(_place, out), pairs, workers), strict=True):
        placed.append(one)
        shards.setdefault(pair.shard, {}).update({pair.image_name: one.image, pair.mask_name: one.mask})
        progress.step(1, one.image.bytes + one.mask.bytes)
    entries: dict[str, str] = {}
    for city, files in shards.items():
        entries |= record_files(out, split, city, files)
    return _summed_up(placed), entries


def _place(out: Path, pair: SourcePair) -> _Placed:
    width, height = picture_size(pair.image)
    image, mask = out / pair.image_name, out / pair.mask_name
    drawn = draw_label_ids(pair.truth) if pair.has_polygons else None
    mask_width, mask_height = drawn.size if drawn else picture_size(pair.truth)
    if (mask_width, mask_height) != (width, height):
        raise DataError(
            f"{pair.truth}: {mask_width}x{mask_height} px, but its image {pair.image} is {width}x{height} px; "
            "both must have the same size"
        )
    link_or_copy(pair.image, image)
    if drawn:
        drawn.save(mask)
    else:
        link_or_copy(pair.truth, mask)
    return _Placed(stored_file(image), stored_file(mask), width, height)


def _summed_up(placed: Sequence[_Placed]) -> SplitManifest:
    sizes = {(one.width, one.height) for one in placed}
    width, height = sizes.pop() if len(sizes) == 1 else (None, None)
    return SplitManifest(
        images=len(placed),
        annotations=0,
        image_bytes=sum(one.image.bytes for one in placed),
        label_bytes=sum(one.mask.bytes for one in placed),
        width=width,
        height=height,
    )
