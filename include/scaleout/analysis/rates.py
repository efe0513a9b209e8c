"""Rates of a trial, from the event logs of all its ranks.

A rate is images consumed by all ranks over wall time between two barriers; waiting for data is inside that time. The
first pass over the data is never averaged with later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from training.wire.events import (
    Body,
    ClockStart,
    ClockStop,
    EpochEnd,
    Event,
    FirstBatch,
    RunEnd,
    RunStart,
    Synthetic,
    Window,
)

Events = Mapping[int, Sequence[Event]]
B = TypeVar("B", bound=Body)
N = TypeVar("N", int, float)
NEEDED = ("run_start", "clock_start", "first_batch", "window", "clock_stop", "run_end")


@dataclass(frozen=True)
class Pass:
    """One pass over the data, or the part of it that ran: all ranks' images, wall seconds between barriers.

    `host_data_wait_s` and `gpu_idle_s` are means over ranks, the latter null without GPUs; `read_bytes` is what all ranks
    fetched from storage, null where one could not read its counter.
    """

    index: int
    epoch: int
    steps: int
    images: int
    padded_images: int
    seconds: float
    host_data_wait_s: float
    gpu_idle_s: float | None
    read_bytes: int | None
    complete: bool

    @property
    def images_per_s(self) -> float:
        return self.images / self.seconds


@dataclass(frozen=True)
class Rates:
    """What the clocks of all ranks say. Seconds are the slowest rank's.

    Bytes are sums over the ranks of each node, of the whole trial and of its first pass; null where a rank could not read
    its counter.
    """

    passes: list[Pass]
    images: int
    window_s: float
    synthetic_images_per_s: float | None
    start_up_s: float
    time_to_first_batch_s: float
    prefetched_images: int
    read_bytes: dict[str, int | None]
    distinct_bytes: dict[str, int | None]
    first_pass_read_bytes: dict[str, int | None]
    first_pass_distinct_bytes: dict[str, int | None]
    clock_start_wall_s: float
    clock_stop_wall_s: float

    @property
    def first_pass(self) -> Pass:
        """After a cold start, what is cold."""
        return self.passes[0]

    @property
    def images_per_s(self) -> float:
        return self.first_pass.images_per_s

    @property
    def images_per_s_later_pass(self) -> float | None:
        later = self.passes[1:]
        return sum(p.images for p in later) / sum(p.seconds for p in later) if later else None

    @property
    def host_data_wait_s(self) -> float:
        return sum(p.host_data_wait_s for p in self.passes)

    @property
    def gpu_idle_s(self) -> float | None:
        return total(p.gpu_idle_s for p in self.passes)


def problems(events: Events, world_size: int) -> list[str]:
    """Why these logs cannot give a rate; empty when they can."""
    found = [f"rank {rank} left no event log" for rank in range(world_size) if rank not in events]
    for rank, log in sorted(events.items()):
        kinds = {event.body.kind for event in log}
        missing = [kind for kind in NEEDED if kind not in kinds]
        if missing:
            found.append(f"rank {rank}'s event log ends without {', '.join(missing)}")
        found += [f"rank {rank} failed: {end.error}" for end in bodies(log, RunEnd) if end.status == "failed"]
    return found


def rates(events: Events) -> Rates:
    """The rates of complete logs (see `problems`), keyed by global rank."""
    starts = {rank: one(log, RunStart) for rank, log in events.items()}
    stops = {rank: one(log, ClockStop) for rank, log in events.items()}
    clock_starts = {rank: one(log, ClockStart) for rank, log in events.items()}
    windows = {rank: bodies(log, Window) for rank, log in events.items()}
    nodes = {rank: start.node for rank, start in starts.items()}
    read_bytes = {rank: _difference(stops[rank].read_bytes, clock_starts[rank].read_bytes) for rank in events}
    read_in_passes = {rank: _read_in_passes(log) for rank, log in events.items()}
    first_pass = {rank: read.get(0) for rank, read in read_in_passes.items()}
    return Rates(
        passes=_passes(events, windows, read_in_passes),
        images=sum(stop.images for stop in stops.values()),
        window_s=max(stop.seconds for stop in stops.values()),
        synthetic_images_per_s=_synthetic_rate(events),
        start_up_s=max(stamp(log, ClockStart).t_mono_s - stamp(log, RunStart).t_mono_s for log in events.values()),
        time_to_first_batch_s=max(one(log, FirstBatch).seconds for log in events.values()),
        prefetched_images=sum(stop.prefetched_images for stop in stops.values()),
        read_bytes=_sum_by_node(nodes, read_bytes),
        distinct_bytes=_sum_by_node(nodes, {r: stop.distinct_bytes for r, stop in stops.items()}),
        first_pass_read_bytes=_sum_by_node(nodes, first_pass),
        first_pass_distinct_bytes=_sum_by_node(nodes, {r: stop.first_pass_distinct_bytes for r, stop in stops.items()}),
        clock_start_wall_s=min(stamp(log, ClockStart).t_wall_s for log in events.values()),
        clock_stop_wall_s=max(stamp(log, ClockStop).t_wall_s for log in events.values()),
    )


def bodies(log: Iterable[Event], kind: type[B]) -> list[B]:
    """The bodies of one kind, in order."""
    return [event.body for event in log if isinstance(event.body, kind)]


def one(log: Sequence[Event], kind: type[B]) -> B:
    """The only body of a kind."""
    return bodies(log, kind)[0]


def stamp(log: Sequence[Event], kind: type[Body]) -> Event:
    return next(event for event in log if isinstance(event.body, kind))


def total(values: Iterable[N | None]) -> N | None:
    """The sum, null where one of them is."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _passes(
    events: Events, windows: Mapping[int, Sequence[Window]], read_in_passes: Mapping[int, Mapping[int, int | None]]
) -> list[Pass]:
    found = []
    ends = [end for log in events.values() for end in bodies(log, EpochEnd)]
    for index in sorted({w.pass_index for ws in windows.values() for w in ws}):
        of_pass = {rank: [w for w in ws if w.pass_index == index] for rank, ws in windows.items()}
        everyones = [w for ws in of_pass.values() for w in ws]
        closing = [end for end in ends if end.pass_index == index]
        idle_s = total(w.gpu_idle_s for w in everyones)
        found.append(
            Pass(
                index=index,
                epoch=max(w.epoch for w in everyones),
                steps=max(sum(w.steps for w in ws) for ws in of_pass.values()),
                images=sum(w.images for w in everyones),
                padded_images=sum(end.padded_images for end in closing),
                seconds=max(sum(w.seconds for w in ws) for ws in of_pass.values()),
                host_data_wait_s=sum(w.data_wait_s for w in everyones) / len(events),
                gpu_idle_s=None if idle_s is None else idle_s / len(events),
                read_bytes=total(read.get(index) for read in read_in_passes.values()),
                complete=bool(closing) and all(end.complete for end in closing),
            )
        )
    return found


def _read_in_passes(log: Sequence[Event]) -> dict[int, int | None]:
    """Bytes that a rank fetched from storage in each pass, from its counter at the pass's end and at the end before."""
    read, before = {}, one(log, ClockStart).read_bytes
    for end in bodies(log, EpochEnd):
        read[end.pass_index] = _difference(end.read_bytes, before)
        before = end.read_bytes
    return read


def _synthetic_rate(events: Events) -> float | None:
    runs = [run for log in events.values() for run in bodies(log, Synthetic)]
    if len(runs) < len(events) or not all(run.images for run in runs):
        return None
    return sum(run.images for run in runs) / max(run.seconds for run in runs)


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _sum_by_node(nodes: Mapping[int, str], values: Mapping[int, int | None]) -> dict[str, int | None]:
    """Sums over each node's ranks; null where one of them is."""
    return {name: total(values.get(rank) for rank, node in nodes.items() if node == name) for name in nodes.values()}
