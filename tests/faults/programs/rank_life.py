"""What the ranks of the tests share: a line and an event per step, and faults on request.

What a rank is to do stands in its host's `~/behaviour/`: a file `exit-<rank>` holds the status to exit with, `deadlock-<rank>`
makes it wait for ever, and `finish` ends the whole gang well. A rank holds its GPU, and tells when another one still did.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

sys.path.insert(0, str(Path.cwd()))

from training.wire.events import Body, Window
from training.wire.job import RUN_ID_VARIABLE

RANK, LOCAL_RANK, WORLD_SIZE = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
HOME = Path(os.environ["HOME"])
BEHAVIOUR = HOME / "behaviour"


class RankLife:
    """Of this process, which is one rank and writes its events with `write`."""

    def __init__(self, write: Callable[[Body], None]) -> None:
        self._write = write
        self._gpu = take_gpu()
        self._steps = 0

    def work(self, seconds: float) -> None:
        """One step, at whose end stand an event and a line."""
        status = asked("exit")
        if status is not None:
            os._exit(int(status))
        if asked("deadlock") is not None:
            wait_for_ever()
        time.sleep(seconds)
        self._write(
            Window(
                pass_index=0, epoch=0, step_first=self._steps, steps=1, images=1, seconds=seconds, data_wait_s=0.0,
                gpu_idle_s=None, loss=1.0, learning_rate=0.1, host_memory_bytes=0, gpu_memory_bytes=None,
            )
        )  # fmt: skip
        self._steps += 1
        os.write(1, f"rank {RANK} line {self._steps}\n".encode())


def take_gpu() -> TextIO:
    """The open file whose lock stands for the GPU. Another rank that has it is an earlier gang's: there are two at once."""
    path = HOME / "gpus" / str(LOCAL_RANK)
    path.parent.mkdir(exist_ok=True)
    gpu = path.open("a")
    try:
        fcntl.flock(gpu, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with (HOME / "doubled").open("a") as told:
            told.write(
                f"rank {RANK} of {os.environ[RUN_ID_VARIABLE]} found GPU {LOCAL_RANK} taken at {time.time():.3f}\n"
            )
    return gpu


def asked(what: str) -> str | None:
    try:
        return (BEHAVIOUR / f"{what}-{RANK}").read_text()
    except OSError:
        return None


def is_finished() -> bool:
    return (BEHAVIOUR / "finish").exists()


def wait_for_ever() -> None:
    while True:
        time.sleep(3600)
