"""From plans to batches: the loader that was asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from training.common.loader import Batch, Loader, Planner, Usage
from training.common.sampler import Sampler
from training.common.step import Inputs
from training.common.training import Place


class SyntheticLoader:
    """The same batch again and again; opens no file."""

    def __init__(self, inputs: Inputs, steps_per_pass: int) -> None:
        self.steps_per_pass = steps_per_pass
        self._batch = Batch(inputs, images=len(inputs[0]), padded_images=0)

    def next_batch(self) -> Batch:
        return self._batch

    def usage(self) -> Usage:
        return Usage(distinct_files=0, distinct_bytes=0, first_pass_distinct_bytes=0, prefetched_images=0)

    def close(self) -> None:
        pass


def open_loader(
    place: Place,
    sampler: Sampler,
    planner: Planner,
    synthetic: Inputs,
    torch_load: Callable[[], Any],
    dali_graph: Callable[[], Any],
) -> Loader:
    """`torch_load` makes TorchLoader's load, `dali_graph` DaliLoader's graph. Synthetic batches come from no data set, so a
    training of so many steps or seconds makes one pass of them, however small the data set is.

    DALI and the torch loader are imported where they are used: each can do without the other.
    """
    if place.synthetic:
        options = place.options
        bounded = options.steps is not None or options.seconds is not None
        return SyntheticLoader(synthetic, sys.maxsize if bounded else sampler.steps_per_pass)
    if place.options.loader == "torch":
        from training.common.torch_loader import TorchLoader

        return TorchLoader(sampler, planner, place.gang, torch_load(), place.workers, place.first_epoch)
    from training.common.dali_loader import DaliLoader

    return DaliLoader(sampler, planner, place.gang, dali_graph(), place.workers, place.first_epoch)
