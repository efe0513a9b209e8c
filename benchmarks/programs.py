"""Runs the project's programs as a user would, with their time and memory."""

from __future__ import annotations

import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

_PROGRAMS = Path(__file__).resolve().parents[1] / "training"
_LOOKS_S = 0.1


@dataclass(frozen=True)
class Ran:
    """`peak_bytes`: what all its processes held at most, shared pages counted once, looked at every 0.1 s."""

    seconds: float
    peak_bytes: int
    stdout: str

    def text(self) -> str:
        return f"{self.seconds:7.1f} s, at most {self.peak_bytes / 1e6:.0f} MB of memory in all its processes"


def run(program: str, *arguments: str) -> Ran:
    """Runs `program`, a path below training/, whose stderr is shown. Ends this process where it fails."""
    command = [sys.executable, str(_PROGRAMS / program), *arguments]
    started_s = time.perf_counter()
    with _peak_bytes() as peak:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} ended with {done.returncode}")
    return Ran(time.perf_counter() - started_s, peak[0], done.stdout)


@contextmanager
def _peak_bytes() -> Iterator[list[int]]:
    peak, ended = [0], threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOKS_S):
            held = 0
            for process in psutil.Process().children(recursive=True):
                try:
                    held += process.memory_full_info().pss
                except psutil.Error:
                    continue
            peak[0] = max(peak[0], held)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()
