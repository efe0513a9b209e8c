"""What the engine asks of a workload: which files of the base set are frames, and how labels follow their pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from training.data.inflation.base import BaseSet, Frame
from training.data.inflation.layout import Shard

if TYPE_CHECKING:
    from training.data.inflation.augment import Change  # imports torch, and a set that is there needs none

Content = tuple[str, bytes]  # a path below the set, and what the file there holds


class ShardLabels(Protocol):
    """The labels of one shard, made variant by variant."""

    def add(self, variant: int, image: str, change: Change | None) -> list[Content]:
        """The label files of one variant, whose picture is at path `image`; without a change it is the frame itself."""
        ...

    def rest(self) -> list[Content]:
        """The label files of the whole shard, after its last variant."""
        ...


@dataclass(frozen=True)
class Finished:
    """What the labels of the whole set come to. `shards` are the manifest's entries of the records that were written."""

    annotations: int
    shards: dict[str, str]


class Labels(Protocol):
    """A workload's labels. `program` is its path below the release, `maker` that of what makes its base sets.

    Pictures of train lie in `images`, masks in `masks`, each shard's in a folder of its own there; the other files are in
    `label_folders`. `mean_mb` is the paper's
    mean size of an image, with its mask.
    """

    workload: str
    program: str
    maker: str
    mean_mb: float
    images: str
    masks: str | None
    label_folders: tuple[str, ...]

    def frames(self, base: BaseSet) -> list[Frame]:
        """The frames of train, in the order in which their variants are numbered."""
        ...

    def check(self, base: BaseSet) -> None:
        """Raises DataError for a base set whose labels cannot be moved, but only copied."""
        ...

    def load(self, base: BaseSet, factor: int) -> None:
        """Reads what `begin` needs, before worker processes are forked. Raises DataError."""
        ...

    def begin(self, shard: Shard, frame: Frame) -> ShardLabels:
        """Raises DataError."""
        ...

    def bytes_per_image(self, base: BaseSet, frames: Sequence[Frame], changes: Sequence[Change]) -> float:
        """About how much room the labels of an image take, with all that `finish` writes.

        `frames` are a sample, and `changes` one of each; without any, labels are copied. Raises DataError.
        """
        ...

    def is_carried(self, name: str) -> bool:
        """Whether a shard of another split than train is taken from the base set as it is."""
        ...

    def finish(self, out: Path, shards: Sequence[Shard], workers: int) -> Finished:
        """Makes of the shards' labels those of the set, once all shards are there."""
        ...


def folders(labels: Labels, shard: Shard) -> list[str]:
    """The folders that hold nothing but files of a shard, as paths below the set."""
    return [f"{part}/{shard.name}" for part in (labels.images, labels.masks) if part]
