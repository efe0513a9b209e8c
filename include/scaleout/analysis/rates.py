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
    first_pass = {
        rank: _difference(end.read_bytes, clock_starts[rank].read_bytes)
        for rank, log in events.items()
        for end in bodies(log, EpochEnd)
        if end.pass_index == 0
    }
    return Rates(
        passes=_passes(events, windows),
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


def total(values: Iterable[float | None]) -> float | None:
    """The sum, null where one of them is."""
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _passes(events: Events, windows: Mapping[int, Sequence[Window]]) -> list[Pass]:
    indices = sorted({w.pass_index for ws in windows.values() for w in ws})
    return [
        _pass(index, events, {r: [w for w in ws if w.pass_index == index] for r, ws in windows.items()})
        for index in indices
    ]


def _pass(index: int, events: Events, windows: Mapping[int, Sequence[Window]]) -> Pass:
    """`windows` are those of the pass."""
    ends = [end for log in events.values() for end in bodies(log, EpochEnd) if end.pass_index == index]
    everyones = [w for ws in windows.values() for w in ws]
    idle_s, read_bytes = total(w.gpu_idle_s for w in everyones), total(_read_in(index, log) for log in events.values())
    return Pass(
        index=index,
        epoch=max(w.epoch for w in everyones),
        steps=max(sum(w.steps for w in ws) for ws in windows.values()),
        images=sum(w.images for w in everyones),
        padded_images=sum(end.padded_images for end in ends),
        seconds=max(sum(w.seconds for w in ws) for ws in windows.values()),
        host_data_wait_s=sum(w.data_wait_s for w in everyones) / len(events),
        gpu_idle_s=None if idle_s is None else idle_s / len(events),
        read_bytes=None if read_bytes is None else int(read_bytes),
        complete=bool(ends) and all(end.complete for end in ends),
    )


def _read_in(index: int, log: Sequence[Event]) -> int | None:
    """Bytes that a rank fetched from storage in a pass, from its counter at the end of this one and of the one before."""
    at_end = {end.pass_index: end.read_bytes for end in bodies(log, EpochEnd)}
    at_end[-1] = one(log, ClockStart).read_bytes
    return _difference(at_end.get(index), at_end.get(index - 1))


def _synthetic_rate(events: Events) -> float | None:
    runs = [run for log in events.values() for run in bodies(log, Synthetic)]
    if len(runs) < len(events) or not all(run.images for run in runs):
        return None
    return sum(run.images for run in runs) / max(run.seconds for run in runs)


def _difference(after: int | None, before: int | None) -> int | None:
    return None if after is None or before is None else after - before


def _sum_by_node(nodes: Mapping[int, str], values: Mapping[int, int | None]) -> dict[str, int | None]:
    """Sums over each node's ranks; null where one of them is."""
    sums: dict[str, int | None] = {}
    for rank, node in nodes.items():
        so_far, value = sums.get(node, 0), values.get(rank)
        sums[node] = None if so_far is None or value is None else so_far + value
    return sums
