"""Signs of life of this process: its event log is touched as it works, and on SIGUSR1 it writes the stacks of all threads.

One process is one rank, and has one event log; hence module state.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
from pathlib import Path

from training.wire.events import EventLog
from training.wire.job import RUN_FOLDER_VARIABLE, STACKS_FILE

_log: EventLog | None = None


def begin(log: EventLog | None) -> None:
    """From now on `beat` touches this log, and SIGUSR1 writes stacks: into the run folder, where there is one."""
    global _log
    _log = log
    folder = os.environ.get(RUN_FOLDER_VARIABLE)
    out = (Path(folder) / STACKS_FILE).open("a") if folder else sys.stderr
    faulthandler.register(signal.SIGUSR1, file=out, all_threads=True)


def end() -> None:
    """The log is closed: what goes on in this process, as in a test, has none to touch."""
    global _log
    _log = None


def beat() -> None:
    """Called once per step of anything that may take long."""
    if _log is not None:
        _log.beat()
