"""What the evaluations of both programs share: a model that only infers, images read ahead, and ranks that end alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, Dataset

from training.common import facts
from training.common.errors import UserError
from training.common.gang import Gang
from training.common.life import beat
from training.common.workers import keep_what_was_inherited, worker_died
from training.wire.events import RunStart

Autocast = Callable[[], AbstractContextManager[Any]]

_BLOCKS_AHEAD = 2

R = TypeVar("R")
T = TypeVar("T")


@contextmanager
def inferring(model: nn.Module, repeatable: bool) -> Iterator[None]:
    """Evaluation mode without gradients. `repeatable`: cuDNN does not choose algorithms by the clock."""
    modes = [(module, module.training) for module in model.modules()]
    cudnn = torch.backends.cudnn
    choice = cudnn.benchmark, cudnn.deterministic
    if repeatable:
        cudnn.benchmark, cudnn.deterministic = False, True
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        cudnn.benchmark, cudnn.deterministic = choice
        for module, mode in modes:
            module.training = mode


def take_over_buffers(model: nn.Module, gang: Gang) -> None:
    """Batch-norm statistics are each rank's own in training; rank 0's are what a checkpoint holds."""
    if gang.backend is None:
        return
    for buffer in model.buffers():
        if buffer.is_floating_point():
            dist.broadcast(buffer, src=0)


def blocks_of(images: int, batch: int) -> list[range]:
    """`batch` consecutive images each, the last block what is left. Rank r of w takes `blocks[r::w]`."""
    return [range(first, min(first + batch, images)) for first in range(0, images, batch)]


def read_ahead(read: Callable[[Sequence[int]], T], blocks: Sequence[Sequence[int]], workers: int) -> Iterator[T]:
    """What `read` makes of each block, in their order, by processes that are ahead of who iterates.

    Threads would fight for Python's lock with who iterates. A UserError of `read` is raised here. Close it to end the
    processes early.
    """
    results = DataLoader(
        _Reads(read, blocks),
        batch_size=None,
        collate_fn=_as_it_is,
        num_workers=max(1, min(workers, len(blocks))),
        prefetch_factor=_BLOCKS_AHEAD,
        worker_init_fn=keep_what_was_inherited,
    )
    try:
        for result, problem in results:
            if problem is not None:
                raise UserError(problem)
            beat()
            yield result
    except RuntimeError as error:
        raise worker_died(error) from error


class _Reads(Dataset[tuple[T | None, str | None]]):
    def __init__(self, read: Callable[[Sequence[int]], T], blocks: Sequence[Sequence[int]]) -> None:
        self._read, self._blocks = read, blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, number: int) -> tuple[T | None, str | None]:
        try:
            return self._read(self._blocks[number]), None
        except UserError as error:
            return None, str(error)


def _as_it_is(value: T) -> T:
    return value


def together(gang: Gang, part: Callable[[], T], join: Callable[[list[T]], R]) -> R:
    """Every rank does its part, rank 0 joins them in the order of the ranks, and every rank gets the result.

    A UserError of any part is raised on every rank, once all have ended: the lowest rank's if there are several. One
    of `join` is too.
    """
    problem, mine = None, None
    try:
        mine = part()
    except UserError as error:
        problem = str(error)
    parts = gang.gather((problem, mine))

    def result() -> R:
        for problem, _ in parts:
            if problem is not None:
                raise UserError(problem)
        return join([one for _, one in parts])

    return gang.share(result)


def start_event(
    *,
    program: str,
    model_name: str,
    model: nn.Module,
    classes: list[str],
    gang: Gang,
    precision: str,
    seed: int,
    batch: int,
    workers: int,
    epochs: int,
    binding: str,
) -> RunStart:
    """The first event of a run that only infers; `epochs` of training are behind the weights."""
    return RunStart(
        program=program,
        argv=sys.argv[1:],
        model=model_name,
        classes=classes,
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        ddp="none",
        precision=precision,
        loader="torch",
        seed=seed,
        batch_per_gpu=batch,
        global_batch=batch * gang.world_size,
        num_workers=workers,
        learning_rate=0.0,
        length={},
        dataset=None,
        first_epoch=epochs,
        binding=binding,
        **facts.place(gang, "none"),
    )
