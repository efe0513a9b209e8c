"""Which samples each rank takes in each step: the same global batches however many ranks share them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SHARDING = "whole set reshuffled for each pass, alike on every rank; each global batch is cut into one part per rank"

Draw = Callable[[np.random.Generator, int], NDArray[np.int64]]

_NUMBERS_PER_BLOCK = 4  # Philox-4x64 makes four at a time


@dataclass(frozen=True)
class Share:
    """One rank's part of one step: `items` (B,), of which the last `padded` repeat others to fill up the pass.

    It is row `row` of `machine_items` (L, B), the parts of the L ranks that share its machine and its page cache.
    """

    epoch: int
    step: int
    machine_items: NDArray[np.int64]
    row: int
    padded: int
    first_position: int
    seed: int

    @property
    def items(self) -> NDArray[np.int64]:
        items: NDArray[np.int64] = self.machine_items[self.row]
        return items

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """(B, `count`) random numbers in [0, 1).

        A sample's row depends on the seed, the epoch and its place in the epoch's order only, so that augmentation is
        the same on any number of ranks and after a resume (Salmon et al. 2011, counter-based random numbers).
        """
        blocks = math.ceil(count / _NUMBERS_PER_BLOCK)
        counter = np.array([self.first_position * blocks, 0, 0, 0], dtype=np.uint64)
        key = np.array([self.seed, self.epoch], dtype=np.uint64)
        generator = np.random.Generator(np.random.Philox(counter=counter, key=key))
        return generator.random((len(self.items), blocks * _NUMBERS_PER_BLOCK))[:, :count]


class Sampler:
    """Every item once an epoch, in an order that depends on the seed and the epoch only.

    Step s of an epoch takes the places s·W·B … of its order, and rank r the r-th B of them (W ranks, batch B): training
    on W ranks with batch B consumes the same global batches as on one rank with batch W·B. Places behind the end are
    padding and repeat the order from its beginning, so that every rank makes the same number of whole steps.
    """

    def __init__(
        self,
        length: int,
        rank: int,
        world_size: int,
        batch_per_gpu: int,
        seed: int,
        draw: Draw | None = None,
        machine_ranks: Sequence[int] | None = None,
    ) -> None:
        """`draw` makes the order of an epoch, `length` items; the default is a permutation of 0 … length - 1.

        `machine_ranks` are those on this rank's machine, itself among them; by default it is alone there.
        """
        self._machine_ranks = np.array([rank] if machine_ranks is None else machine_ranks)
        self.steps_per_pass = math.ceil(length / (world_size * batch_per_gpu))
        self.batch_per_gpu = batch_per_gpu
        self._length, self._rank, self._world_size, self._seed = length, rank, world_size, seed
        self._draw = draw or (lambda random, _: random.permutation(length))
        self._epoch, self._order = -1, np.empty(0, dtype=np.int64)

    def share(self, epoch: int, step: int) -> Share:
        """This rank's part of step `step` (from 0) of an epoch."""
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._draw(np.random.default_rng([self._seed, epoch]), epoch)
        first = (step * self._world_size + self._rank) * self.batch_per_gpu
        firsts = (step * self._world_size + self._machine_ranks) * self.batch_per_gpu
        places = firsts[:, None] + np.arange(self.batch_per_gpu)
        row = int((self._machine_ranks == self._rank).argmax())
        return Share(
            epoch=epoch,
            step=step,
            machine_items=self._order[places % self._length],
            row=row,
            padded=int((places[row] >= self._length).sum()),
            first_position=first,
            seed=self._seed,
        )
