"""A step's time, split by a trace of torch's profiler: compute, communication that compute hid, communication that it did not.

On a GPU compute is every kernel and copy but NCCL's; on the CPU every operator but those that exchange, and communication
is what gloo's threads were at. Times that overlap count once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Span = tuple[float, float]
_ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True)
class Split:
    """Seconds a step: `compute`, `hidden` (communication beside compute), `exposed` (communication alone), `neither`."""

    compute: float
    hidden: float
    exposed: float
    neither: float


def split(trace: Path, steps: int) -> Split:
    """Of a rank's Chrome trace of so many steps. Raises ValueError where it holds no work."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("ph") == "X"]
    device = [event for event in events if event.get("cat") in _ON_GPU]
    if device:
        talk = [event for event in device if event["name"].startswith("nccl")]
        work = [event for event in device if not event["name"].startswith("nccl")]
    else:
        talk = [event for event in events if event["name"].startswith("gloo:")]
        work = [event for event in events if event.get("cat") == "cpu_op" and not event["name"].startswith("c10d::")]
    if not work:
        raise ValueError(f"{trace}: nothing was computed in it")
    compute, communication, either = (_union(map(_span, some)) for some in (work, talk, work + talk))
    hidden = _length(compute) + _length(communication) - _length(either)
    whole = either[-1][1] - either[0][0]
    parts = (_length(compute), hidden, _length(communication) - hidden, whole - _length(either))
    return Split(*(part / 1e6 / steps for part in parts))


def _span(event: dict[str, Any]) -> Span:
    begin = float(event["ts"])
    return begin, begin + float(event["dur"])


def _union(spans: Any) -> list[Span]:
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((begin, end))
    return found


def _length(spans: list[Span]) -> float:
    return sum(end - begin for begin, end in spans)
