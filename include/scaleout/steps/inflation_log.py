"""What the log of prepare_data tells while the nodes make images: each node's progress, and that of all together."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass

_PROGRESS = re.compile(
    r"(?P<done>[\d,]+) of (?P<of>[\d,]+) images, (?P<images_per_s>[\d.,]+) images/s, (?P<mb_per_s>[\d.,]+) MB/s"
)
FIRST_INTERVAL_S, MOST_INTERVAL_S, PART_OF_ELAPSED = 10.0, 60.0, 0.1


@dataclass(frozen=True)
class _Progress:
    """Of one node: images of its part, and the rates that it told."""

    line: str
    done: int
    of: int
    images_per_s: float
    mb_per_s: float

    @property
    def left_s(self) -> float:
        return (self.of - self.done) / self.images_per_s if self.images_per_s else 0.0


class InflationLog:
    """Hears what the nodes say; progress is told at growing intervals, since a large data set takes hours, all else at once.

    `images` are those of the whole data set and `left` those that were to be made when this began.
    """

    def __init__(
        self,
        workload: str,
        images: int,
        left: int,
        say: Callable[[str], None],
        first_interval_s: float = FIRST_INTERVAL_S,
    ) -> None:
        self._workload, self._images, self._left, self._say = workload, images, left, say
        self._first_interval_s = first_interval_s
        self._of_node: dict[str, _Progress] = {}
        self._began_s = self._told_s = time.monotonic()

    def hear(self, node: str, line: str) -> None:
        found = _PROGRESS.match(line)
        if found is None:
            self._say(f"[{node}] {line}")
            return
        numbers = {name: float(text.replace(",", "")) for name, text in found.groupdict().items()}
        self._of_node[node] = _Progress(
            line, int(numbers["done"]), int(numbers["of"]), numbers["images_per_s"], numbers["mb_per_s"]
        )
        now_s = time.monotonic()
        if now_s - self._told_s >= self._interval_s(now_s):
            self._told_s = now_s
            self.tell()

    def tell(self) -> None:
        """A line for each node, and one for all where they are several."""
        for node, progress in sorted(self._of_node.items()):
            self._say(f"[{node}] {progress.line}")
        if len(self._of_node) > 1:
            of_nodes = list(self._of_node.values())
            self._say(
                f"{self._workload}: {self._done():,} of {self._images:,} images, "
                f"{sum(p.images_per_s for p in of_nodes):.1f} images/s, {sum(p.mb_per_s for p in of_nodes):.1f} MB/s, "
                f"{duration_text(max(p.left_s for p in of_nodes))} left on {len(of_nodes)} nodes"
            )

    def standing(self) -> str:
        """What is done and what is left, for a preparation that ends here."""
        done = self._done()
        return (
            f"about {done:,} of {self._images:,} images of {self._workload} are made and {self._images - done:,} are left; run the "
            "sweep again, and it goes on from the shards that are whole"
        )

    def _done(self) -> int:
        return self._images - self._left + sum(progress.done for progress in self._of_node.values())

    def _interval_s(self, now_s: float) -> float:
        return min(MOST_INTERVAL_S, max(self._first_interval_s, PART_OF_ELAPSED * (now_s - self._began_s)))


def duration_text(seconds: float) -> str:
    """`4.6 s`, `46 s`, `12 min` or `3.4 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
