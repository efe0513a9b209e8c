"""The folder that `--data` names: annotations/instances_train2017.json, train2017/<file_name>, maybe manifest.json."""

from __future__ import annotations

import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from training.common.errors import UserError
from training.common.gang import Gang
from training.data.files import LOOKUPS_AT_ONCE
from training.data.manifest import annotations_file, read_manifest, split_folder
from training.ssd.annotations import Annotations

SHARDING = "whole set reshuffled for each pass, alike on every rank; contiguous shards by global rank"

_LOOKUPS_QUEUED = 4096


@dataclass(frozen=True)
class Layout:
    """Paths below the data set's root."""

    root: Path

    @property
    def annotations(self) -> Path:
        return self.root / annotations_file("train")

    @property
    def images(self) -> Path:
        return self.root / split_folder("train")

    def check(self) -> None:
        """Raises UserError if a part that training needs is not there."""
        if not self.root.is_dir():
            raise UserError(f"there is no folder {self.root}; --data must name the data set's folder on this node")
        if not self.annotations.is_file():
            raise UserError(f"{self.root} has no {annotations_file('train')}; --data must name a prepared set")
        if not self.images.is_dir():
            raise UserError(f"{self.root} has no train2017 folder with the images of its annotations")

    def image_bytes(self, file_names: Iterable[str]) -> int:
        """The sum of the files' sizes, looked up without opening one. Raises UserError naming one that is missing."""

        def size_bytes(name: str) -> int:
            try:
                return (self.images / name).stat().st_size
            except OSError as error:
                raise UserError(f"the annotations list {name}, but {self.images / name}: {error.strerror}") from error

        names, total_bytes = iter(file_names), 0
        with ThreadPoolExecutor(LOOKUPS_AT_ONCE) as lookups:
            while some := list(islice(names, _LOOKUPS_QUEUED)):
                total_bytes += sum(lookups.map(size_bytes, some))
        return total_bytes


def total_image_bytes(layout: Layout, annotations: Annotations, gang: Gang) -> int:
    """The size of all images that have a box.

    From the manifest, less the images without a box, where the manifest is of these annotations; else each rank looks
    up its share of the files. Raises UserError on every rank if one of them misses a file.
    """
    manifest = read_manifest(layout.root)
    split = manifest.splits.get("train") if manifest else None
    if split and split.images == len(annotations) + annotations.images_without_box:
        return split.image_bytes - layout.image_bytes(annotations.names_without_box())
    problem, mine = None, 0
    try:
        mine = layout.image_bytes(map(annotations.name, range(gang.rank, len(annotations), gang.world_size)))
    except UserError as error:
        problem = error
    anywhere, _ = gang.agree(problem is not None, 0)
    if anywhere:
        raise problem or UserError("another rank did not find all images of the annotations")
    return gang.total(mine)


def steps_per_pass(images: int, world_size: int, batch_per_gpu: int) -> int:
    """Steps that every rank makes in one pass. Raises UserError where a rank's shard would be empty."""
    if images < world_size:
        raise UserError(f"{images} training images cannot be shared by {world_size} ranks; each needs at least one")
    return math.ceil(math.ceil(images / world_size) / batch_per_gpu)
