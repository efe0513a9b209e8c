"""What the measured loop needs from a source of batches, and the account of the files that batches came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from training.common.sampler import Sampler, Share


@dataclass(frozen=True)
class Batch:
    """Tensors on the device. `padded_images` of its `images` were repeated to fill up the pass; `image_ids` names all."""

    inputs: tuple[Tensor, ...]
    images: int
    padded_images: int
    image_ids: Sequence[int | str] = ()


@dataclass(frozen=True)
class Usage:
    """What a loader has read. `distinct_*` are the files of the batches handed out, each once, in all or in the first pass.

    `prefetched_images` is how many more it may have read ahead.
    """

    distinct_files: int
    distinct_bytes: int
    first_pass_distinct_bytes: int
    prefetched_images: int


class Loader(Protocol):
    """Batches without end; every `steps_per_pass` of them, the same on every rank, are one pass over the data.

    Building one opens no image file: the first `next_batch` does.
    """

    steps_per_pass: int

    def next_batch(self) -> Batch:
        """The next batch, waited for. Raises TrainingError."""
        ...

    def usage(self) -> Usage:
        """What was read so far."""
        ...

    def close(self) -> None:
        """Stops reading ahead."""
        ...


@dataclass(frozen=True)
class Plan:
    """What is to be done to the samples of a `share`, before any file is opened.

    `files` has the sample's files for each kind of file (images; or images and masks), `arguments` what the pipeline
    needs beside: an array with a row per sample, or a list with an array per sample. `items` (B,) says whose files these
    are, from 0 up to the planner's `items`, where the share's items say more than that.
    """

    share: Share
    image_ids: list[int | str]
    files: tuple[list[Path], ...]
    arguments: tuple[Any, ...]
    items: NDArray[np.int64] | None = None


class Planner(Protocol):
    """Decides what happens to samples: which files, which crops, which colours. Cheap, and the same for every loader."""

    items: int  # how many different samples there are

    def plan(self, share: Share) -> Plan: ...

    def inspect(self, plan: Plan) -> None:
        """Reads a plan's files once more to find out what is wrong with them. Raises UserError naming one."""
        ...


def shares(sampler: Sampler, first_epoch: int) -> Iterator[Share]:
    """This rank's part of every step from the start of an epoch on, without end."""
    epoch = first_epoch
    while True:
        for step in range(sampler.steps_per_pass):
            yield sampler.share(epoch, step)
        epoch += 1


@dataclass
class Ledger:
    """Counts the files of batches as they are handed out."""

    items: int
    first_epoch: int
    _bytes: NDArray[np.int64] = field(init=False, repr=False)  # of each item's files, 0 before it is handed out
    _first_pass_bytes: int = field(default=0, init=False)
    _files_per_item: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        self._bytes = np.zeros(self.items, dtype=np.int64)

    def hand_out(self, plan: Plan, sizes: Iterable[int]) -> None:
        """Notes a batch. `sizes`, in bytes, has for each sample the sum over its files."""
        self._files_per_item = len(plan.files)
        items = plan.share.items if plan.items is None else plan.items
        for item, size in zip(items.tolist(), sizes, strict=True):
            if self._bytes[item] == 0 and plan.share.epoch == self.first_epoch:
                self._first_pass_bytes += size
            self._bytes[item] = size

    def usage(self, prefetched_images: int) -> Usage:
        return Usage(
            distinct_files=int((self._bytes > 0).sum()) * self._files_per_item,
            distinct_bytes=int(self._bytes.sum()),
            first_pass_distinct_bytes=self._first_pass_bytes,
            prefetched_images=prefetched_images,
        )
