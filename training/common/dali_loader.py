"""Batches of an NVIDIA DALI pipeline whose samples are chosen, and whose files are read, on this side of it."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from torch import Tensor

from training.common.errors import TrainingError, UserError
from training.common.gang import Gang
from training.common.loader import Batch, Ledger, Plan, Planner, Usage, shares
from training.common.reading import FileReader, Reads, contents
from training.common.sampler import Sampler

_QUEUE_DEPTH = 2  # runs that DALI works on ahead
_READ_AHEAD = 3  # batches that are read beyond those
_READS_AT_ONCE = 16
_MOST_LANES = 4
_IN_USE = _QUEUE_DEPTH + 4  # runs whose files DALI may still look at, those included that a GPU has not finished

Finish = Callable[[Sequence[list[Tensor]], Plan], tuple[Tensor, ...]]
_Next = Callable[[Callable[[], Plan]], tuple[Tensor, ...]]  # the next batch, whose plan is known once files were read


@dataclass(frozen=True)
class Graph:
    """`define` maps the nodes of a plan's `files` columns of files, and those of the plan's `arguments` by their names, to
    as many nodes as `outputs` has names.

    On the CPU `finish` makes a batch's inputs of those outputs and its plan: what torch does better than DALI. It gets
    every output as a list of samples, which may differ in size and are valid until it returns.

    Without it, the batches of several steps are made in one run where they have fewer images than `images_at_once`: what a
    run costs the host hardly depends on how many it makes.
    """

    define: Callable[[Sequence[Any], SimpleNamespace], tuple[Any, ...]]
    files: int
    arguments: Sequence[str]
    outputs: list[str]
    finish: Finish | None = None
    images_at_once: int = 1


@dataclass
class _Lane:
    """The `rows` of every run that one pipeline makes with its `threads`; `waiting` holds what it did not take yet, `given`
    what it took last, and reads in place.
    """

    rows: slice
    threads: int
    waiting: deque[tuple[Any, ...]] = field(default_factory=deque)
    given: deque[tuple[Any, ...]] = field(default_factory=lambda: deque(maxlen=_IN_USE))


class DaliLoader:
    """Runs a graph.

    A pipeline of DALI's takes operator after operator, and at each its threads wait for the slowest sample of the batch.
    So on the CPU there are several, in lanes: each has a part of the threads and of every batch, and waits for no other.

    DALI's own readers are not used: they read one file after the other, shard by themselves, draw from one stream of
    random numbers per rank, and do not tell what they have read.
    """

    def __init__(
        self,
        sampler: Sampler,
        planner: Planner,
        gang: Gang,
        graph: Graph,
        threads: int,
        first_epoch: int = 0,
    ) -> None:
        self.steps_per_pass = sampler.steps_per_pass
        self._shares = shares(sampler, first_epoch)
        self._planner = planner
        self._reader = FileReader(_READS_AT_ONCE)
        self._read: deque[tuple[list[Plan], list[Reads]]] = deque()  # for each run not given to DALI yet
        self._decoded: deque[tuple[Plan, list[int]]] = deque()  # given to DALI, not handed out yet
        self._ledger = Ledger(planner.items, first_epoch)
        self._file_wait_s = 0.0
        self._graph = graph
        self._batches = 1 if graph.finish else max(1, graph.images_at_once // sampler.batch_per_gpu)  # of a run
        lanes = min(threads, sampler.batch_per_gpu, _MOST_LANES) if graph.finish else 1
        images = self._batches * sampler.batch_per_gpu
        self._lanes = [_Lane(*_part(lane, lanes, images, threads)) for lane in range(lanes)]
        pipelines = [self._pipeline(lane, gang.device.index) for lane in self._lanes]
        self._next: _Next = (
            _samples(pipelines, graph.finish) if graph.finish else _cut(pipelines[0], graph.outputs, self._batches)
        )

    def next_batch(self) -> Batch:
        try:
            inputs = self._next(lambda: self._decoded[0][0])
        except RuntimeError as error:
            raise self._explained(error) from error
        plan, sizes = self._decoded.popleft()
        self._ledger.hand_out(plan, sizes)
        return Batch(
            inputs=inputs,
            images=len(plan.image_ids),
            padded_images=plan.share.padded,
            image_ids=plan.image_ids,
        )

    def usage(self) -> Usage:
        """`prefetched_images`: of the batches being read or decoded."""
        plans = [*(plan for run, _ in self._read for plan in run), *(plan for plan, _ in self._decoded)]
        return self._ledger.usage(sum(len(plan.image_ids) for plan in plans), self._file_wait_s)

    def close(self) -> None:
        self._reader.close()

    def _pipeline(self, lane: _Lane, device_id: int | None) -> Pipeline:
        graph = self._graph
        pipeline = Pipeline(
            batch_size=lane.rows.stop - lane.rows.start,
            num_threads=lane.threads,
            device_id=device_id,
            prefetch_queue_depth=_QUEUE_DEPTH,
        )

        def source() -> tuple[Any, ...]:
            if not lane.waiting:
                self._feed()
            lane.given.append(lane.waiting.popleft())
            return lane.given[-1]

        with pipeline:
            inputs = graph.files + len(graph.arguments)
            nodes = fn.external_source(source=source, num_outputs=inputs, no_copy=True)
            given = SimpleNamespace(**dict(zip(graph.arguments, nodes[graph.files :], strict=True)))
            pipeline.set_outputs(*graph.define(nodes[: graph.files], given))
        pipeline.build()
        return pipeline

    def _feed(self) -> None:
        """Gives each lane its part of the next run: waits for its files, with those of later runs already asked for."""
        while (len(self._read) - 1) * self._batches < _READ_AHEAD:
            plans = self._planner.plan(list(islice(self._shares, self._batches)))
            columns = zip(*(plan.files for plan in plans), strict=True)
            self._read.append((plans, [self._reader.start(_joined(column)) for column in columns]))
        plans, reads = self._read.popleft()
        asked = time.perf_counter()
        files = [contents(column) for column in reads]
        self._file_wait_s += time.perf_counter() - asked
        sizes = (sum(map(len, sample)) for sample in zip(*files, strict=True))
        self._decoded.extend((plan, list(islice(sizes, len(plan.image_ids)))) for plan in plans)
        given = (_joined([getattr(plan.arguments, name) for plan in plans]) for name in self._graph.arguments)
        inputs = [*files, *given]
        for lane in self._lanes:
            lane.waiting.append(tuple(column[lane.rows] for column in inputs))

    def _explained(self, error: RuntimeError) -> TrainingError:
        """DALI tells the operator and not the file, so the files in work are looked through."""
        for plan, _ in self._decoded:
            try:
                self._planner.inspect(plan)
            except UserError as reason:
                return reason
        return TrainingError(f"the input pipeline failed: {_cause(error)}")


def _part(lane: int, lanes: int, batch: int, threads: int) -> tuple[slice, int]:
    """The rows and the threads of a lane."""
    rows, cores = ((lane * total // lanes, (lane + 1) * total // lanes) for total in (batch, threads))
    return slice(*rows), cores[1] - cores[0]


def _joined(parts: Sequence[Any]) -> Any:
    """One after the other: arrays as an array, lists as a list."""
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else list(chain.from_iterable(parts))


def _cut(pipeline: Pipeline, names: list[str], batches: int) -> _Next:
    """Gives the outputs of the next batch as tensors of torch's, on the pipeline's device; so many are made in one run."""
    runs = DALIGenericIterator(
        [pipeline], names, size=-1, last_batch_policy=LastBatchPolicy.FILL, prepare_first_batch=False
    )
    ready: deque[tuple[Tensor, ...]] = deque()

    def following(_: Callable[[], Plan]) -> tuple[Tensor, ...]:
        if not ready:
            (tensors,) = next(runs)
            ready.extend(zip(*(tensors[name].chunk(batches) for name in names), strict=True))
        return ready.popleft()

    return following


def _samples(pipelines: list[Pipeline], finish: Finish) -> _Next:
    """Gives what `finish` makes of the next batch, while the pipelines work on those after it."""
    ahead = False

    def following(plan: Callable[[], Plan]) -> tuple[Tensor, ...]:
        nonlocal ahead
        if not ahead:
            _schedule(pipelines)
            ahead = True
        shared = [pipeline.share_outputs() for pipeline in pipelines]
        columns = [
            [torch.from_dlpack(sample) for part in parts for sample in part] for parts in zip(*shared, strict=True)
        ]
        with _one_thread():
            inputs = finish(columns, plan())
        for pipeline in pipelines:
            pipeline.release_outputs()
        _schedule(pipelines)
        return inputs

    return following


def _schedule(pipelines: list[Pipeline]) -> None:
    for pipeline in pipelines:
        pipeline.schedule_run()


def _cause(error: RuntimeError) -> str:
    """The operator and the reason in DALI's message, whose other lines are its own stack."""
    text = str(error)
    operator = re.search(r"nvidia\.dali\.fn\.[\w.]+", text)
    reason = text.partition("encountered:")[2].strip().partition("\n")[0] or text.partition("\n")[0]
    return f"{operator.group()}: {reason}" if operator else reason


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch's threads would go on spinning afterwards, on cores that decode the next batch."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
