"""Kinds of input that take turns on the same cores, as ratios to the first of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

_QUEUED = 4  # batches, as many as queues may hold from before


def compare(kinds: dict[str, Callable[[], float]], repeats: int) -> None:
    """Prints medians of the rates, images/s, that the kinds give in their turns, and of the turns' ratios."""
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(repeats):
        for kind, run in kinds.items():
            rates[kind].append(run())
    first = next(iter(rates.values()))
    for kind, found in rates.items():
        ratios = [rate / base for rate, base in zip(found, first, strict=True)]
        print(
            f"  {kind:22} {statistics.median(found):7.1f} images/s   {100 * statistics.median(ratios):5.1f} % of bare "
            f"(from {100 * min(ratios):.1f} to {100 * max(ratios):.1f})",
            flush=True,
        )


def rate(
    next_batch: Callable[[], object], batch: int, seconds: float, settle: Callable[[], None] = lambda: None
) -> float:
    """Images/s of batches of `batch` images. `settle` waits for what was begun."""
    for _ in range(_QUEUED):
        next_batch()
    settle()
    batches, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        next_batch()
        batches += 1
    settle()
    return batches * batch / (time.perf_counter() - started)
