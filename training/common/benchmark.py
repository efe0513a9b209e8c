"""Images/s as the reference programs' benchmark modes tell them, from windows of one step each."""

from __future__ import annotations

import statistics

from training.common.program import Write
from training.common.report import Report
from training.wire.events import Body, Window


class Benchmark:
    """Passes events on and keeps the windows. Their time has the wait for data in it, unlike the reference's."""

    def __init__(self, warmup: int, write: Write) -> None:
        self._warmup, self._write = warmup, write
        self._windows: list[Window] = []

    def write(self, event: Body) -> None:
        if isinstance(event, Window):
            self._windows.append(event)
        self._write(event)

    def tell(self, report: Report, world_size: int) -> None:
        """The rates of the steps after the warm-up."""
        counted = self._windows[self._warmup :]
        tell_rates(
            report,
            images_per_step=counted[0].images * world_size,
            seconds=[window.seconds for window in counted],
            wait_seconds=[window.waiting_s for window in counted],
        )


def tell_rates(report: Report, images_per_step: int, seconds: list[float], wait_seconds: list[float]) -> None:
    """Mean, median, least and greatest images/s of all ranks, under the names that DLLogger users look for."""
    rates = [images_per_step / second for second in seconds]
    found = {
        "avg_img/sec": images_per_step * len(seconds) / sum(seconds),
        "med_img/sec": statistics.median(rates),
        "min_img/sec": min(rates),
        "max_img/sec": max(rates),
    }
    told = ", ".join(f"{name} {rate:.1f}" for name, rate in found.items())
    waited = 100 * sum(wait_seconds) / sum(seconds)
    report.say(f"{told} ({len(rates)} iterations, all ranks); {waited:.1f} % of the time went by waiting for data")
    report.log([], found)
