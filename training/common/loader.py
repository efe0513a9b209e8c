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
    """What a loader has read. `distinct_*` are the files of the batches handed out, in all or in the first pass: each
    once on its machine, see Ledger.

    `prefetched_images` is how many more it may have read ahead. `file_wait_s` is the part of the wait for batches in which
    files were not read yet, None where that cannot be told.
    """

    distinct_files: int
    distinct_bytes: int
    first_pass_distinct_bytes: int
    prefetched_images: int
    file_wait_s: float | None = None


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
    needs beside, by name: an array with a row per sample, or a list with an array per sample. `machine_items` is the share's, as
    numbers of files from 0 up to the planner's `items`, where the share's items say more than that.
    """

    share: Share
    image_ids: list[int | str]
    files: tuple[list[Path], ...]
    arguments: Any
    machine_items: NDArray[np.int64] | None = None


class Planner(Protocol):
    """Decides what happens to samples: which files, which crops, which colours. Cheap, and the same for every loader."""

    items: int  # how many different samples there are

    def plan(self, shares: Sequence[Share]) -> list[Plan]:
        """A plan for each share: of several at once each takes less time."""
        ...

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
    """Counts the files of batches as they are handed out, each once on its machine.

    A file that several ranks of a machine consume is counted by the first of them, in the order of steps and ranks: only
    one of them fetches it from storage, the others find it in the page cache.
    """

    items: int
    first_epoch: int
    _seen: NDArray[np.bool_] = field(init=False, repr=False)
    _files: int = field(default=0, init=False)
    _bytes: int = field(default=0, init=False)
    _first_pass_bytes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._seen = np.zeros(self.items, dtype=np.bool_)

    def hand_out(self, plan: Plan, sizes: Iterable[int]) -> None:
        """Notes a batch. `sizes`, in bytes, has for each sample the sum over its files."""
        share = plan.share
        machine_items = share.machine_items if plan.machine_items is None else plan.machine_items
        self._seen[machine_items[: share.row]] = True
        for item, size in zip(machine_items[share.row].tolist(), sizes, strict=True):
            if self._seen[item]:
                continue
            self._seen[item] = True
            self._files += len(plan.files)
            self._bytes += size
            self._first_pass_bytes += size * (share.epoch == self.first_epoch)
        self._seen[machine_items] = True

    def usage(self, prefetched_images: int, file_wait_s: float | None = None) -> Usage:
        return Usage(
            distinct_files=self._files,
            distinct_bytes=self._bytes,
            first_pass_distinct_bytes=self._first_pass_bytes,
            prefetched_images=prefetched_images,
            file_wait_s=file_wait_s,
        )
