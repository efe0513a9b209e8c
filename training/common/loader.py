"""What the measured loop needs from a source of batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Tensors on the device. `padded_images` of its `images` were repeated to fill up the pass."""

    inputs: tuple[Tensor, ...]
    images: int
    padded_images: int


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
        """The next batch, waited for."""
        ...

    def usage(self) -> Usage:
        """What was read so far; may look up file sizes."""
        ...
