"""What worker processes have done, counted in memory that they share, and told in lines of progress."""

from __future__ import annotations

import time
from multiprocessing import get_context

from training.data.workers import Interval


class Tally:
    """Images and bytes of all processes that were forked since, and whether they are to stop."""

    def __init__(self) -> None:
        context = get_context("fork")
        self._counts = context.Array("q", 2)
        self._stopped = context.Value("b", 0, lock=False)

    def add(self, images: int, image_bytes: int) -> None:
        with self._counts.get_lock():
            self._counts[0] += images
            self._counts[1] += image_bytes

    def counts(self) -> tuple[int, int]:
        """Images and bytes."""
        with self._counts.get_lock():
            return self._counts[0], self._counts[1]

    def stop(self) -> None:
        self._stopped.value = 1

    def is_stopped(self) -> bool:
        return bool(self._stopped.value)


class TallyProgress:
    """Prints images done of all, images/s, MB/s and the time left, at most every 2 s and at the end."""

    def __init__(self, tally: Tally, images: int) -> None:
        self._tally, self._images = tally, images
        self._started_s, self._interval = time.monotonic(), Interval()

    def tell_if_due(self) -> None:
        if self._interval.is_due():
            self.tell()

    def tell(self) -> None:
        images, written_bytes = self._tally.counts()
        seconds = time.monotonic() - self._started_s
        per_s = images / seconds
        left = _duration((self._images - images) / per_s) if images else "unknown time"
        print(
            f"{images} of {self._images} images, {per_s:.1f} images/s, {written_bytes / seconds / 1e6:.1f} MB/s, {left} left",
            flush=True,
        )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
