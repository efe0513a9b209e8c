"""How long something has not changed, on the monotonic clock: a stepped wall clock must end no gang."""

from __future__ import annotations

import time
from collections.abc import Callable


class Unchanged:
    """Of what `stamp` gives, since this object was made."""

    def __init__(self, stamp: Callable[[], object]) -> None:
        self._stamp = stamp
        self._seen, self._since = stamp(), time.monotonic()

    def seconds(self) -> float:
        """Since a change was last seen; looks anew."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen, self._since = stamp, time.monotonic()
        return time.monotonic() - self._since
