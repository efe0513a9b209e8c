"""One process at a time in a folder of this machine."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scaleout.errors import ScaleoutError

LOCK_FILE = "lock"


@contextmanager
def alone_in(folder: Path, refusal: ScaleoutError) -> Iterator[None]:
    """Holds `folder`/lock, which ends with the process at the latest. Raises `refusal` while another process holds it."""
    with (folder / LOCK_FILE).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise refusal from None
        yield
