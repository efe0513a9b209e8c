"""Batches from torch's DataLoader: the same plans as DALI's, carried out by worker processes on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch.utils.data import Sampler as KeySampler

from training.common.errors import UserError
from training.common.gang import Gang
from training.common.loader import Batch, Ledger, Plan, Planner, Usage
from training.common.sampler import Sampler
from training.common.workers import keep_what_was_inherited, worker_died

_PREFETCH = 2  # batches that a worker makes ahead

Load = Callable[[Plan], tuple[tuple[Tensor, ...], list[int]]]
Key = tuple[int, int]  # epoch, step
Made = tuple[tuple[Tensor, ...], list[int], str | None]  # tensors, bytes, and what the user must hear: no traceback


class _Batches(Dataset[Made]):
    """Batches by epoch and step."""

    def __init__(self, sampler: Sampler, planner: Planner, load: Load) -> None:
        self._sampler, self._planner, self._load = sampler, planner, load

    def __getitem__(self, key: Key) -> Made:
        try:
            return *self._load(self.plan(key)), None
        except UserError as error:
            return (), [], str(error)

    def plan(self, key: Key) -> Plan:
        (plan,) = self._planner.plan([self._sampler.share(*key)])
        return plan


class _Keys(KeySampler[Key]):
    def __init__(self, first_epoch: int, steps_per_pass: int) -> None:
        self._first_epoch, self._steps_per_pass = first_epoch, steps_per_pass

    def __iter__(self) -> Iterator[Key]:
        epoch = self._first_epoch
        while True:
            yield from ((epoch, step) for step in range(self._steps_per_pass))
            epoch += 1


class TorchLoader:
    """`load` reads and decodes the files of a plan; it gives the batch's CPU tensors and each sample's bytes."""

    def __init__(
        self, sampler: Sampler, planner: Planner, gang: Gang, load: Load, workers: int, first_epoch: int = 0
    ) -> None:
        self.steps_per_pass = sampler.steps_per_pass
        self._device = gang.device
        self._made = _Batches(sampler, planner, load)
        self._keys = _Keys(first_epoch, sampler.steps_per_pass)
        self._handed_out = iter(self._keys)
        self._ledger = Ledger(planner.items, first_epoch)
        self._ahead_images = workers * _PREFETCH * sampler.batch_per_gpu
        self._workers = workers
        self._batches: Iterator[Made] | None = None  # its workers begin to read as soon as it exists

    def next_batch(self) -> Batch:
        if self._batches is None:
            self._batches = iter(self._open())
        try:
            tensors, sizes, problem = next(self._batches)
        except RuntimeError as error:
            raise worker_died(error) from error
        if problem:
            raise UserError(problem)
        plan = self._made.plan(next(self._handed_out))
        self._ledger.hand_out(plan, sizes)
        inputs = tuple(tensor.to(self._device, non_blocking=True) for tensor in tensors)
        return Batch(inputs, len(plan.image_ids), plan.share.padded, plan.image_ids)

    def usage(self) -> Usage:
        """`prefetched_images` is the most that workers can have read ahead."""
        return self._ledger.usage(self._ahead_images if self._batches is not None else 0)

    def close(self) -> None:
        self._batches = None

    def _open(self) -> DataLoader[Made]:
        return DataLoader(
            self._made,
            batch_size=None,
            sampler=self._keys,
            num_workers=self._workers,
            prefetch_factor=_PREFETCH,
            worker_init_fn=keep_what_was_inherited,
            pin_memory=torch.cuda.is_available() and self._device.type == "cuda",
        )
