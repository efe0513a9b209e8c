"""Runs the project's programs as a user would, with their time and memory."""

from __future__ import annotations

import shlex
import signal
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
    """`peak_bytes`: what all its processes held at most, shared pages counted once, looked at every 0.1 s.

    `own_bytes` is the most without the pages of files that they had mapped, which the kernel takes back when it needs them.
    """

    seconds: float
    peak_bytes: int
    own_bytes: int
    stdout: str

    def text(self) -> str:
        return (
            f"{self.seconds:7.1f} s, at most {self.peak_bytes / 1e6:.0f} MB of memory in all its processes, "
            f"{self.own_bytes / 1e6:.0f} MB without mapped files"
        )


def run(program: str, *arguments: str) -> Ran:
    """Runs `program`, a path below training/, whose stderr is shown. Ends this process where it fails."""
    command = [sys.executable, str(_PROGRAMS / program), *arguments]
    started_s = time.perf_counter()
    with _peak_bytes() as peak:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} ended with {done.returncode}")
    return Ran(time.perf_counter() - started_s, *peak, done.stdout)


def end_with_all() -> None:
    """From now on SIGTERM is an exit like others, at which what was started is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


@contextmanager
def _peak_bytes() -> Iterator[list[int]]:
    """What this process's children held at most, with mapped files and without."""
    peak, ended = [0, 0], threading.Event()

    def watch() -> None:
        while not ended.wait(_LOOKS_S):
            held = [_held_bytes(process.pid) for process in psutil.Process().children(recursive=True)]
            peak[:] = [max(most, sum(part)) for most, part in zip(peak, zip(*held, strict=True), strict=False)] or peak

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield peak
    finally:
        ended.set()
        thread.join()


def _held_bytes(pid: int) -> tuple[int, int]:
    """A process's share of its pages, all and those of no file; none of one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return 0, 0
    kib = {name: int(value.split()[0]) for name, _, value in (line.partition(":") for line in lines)}
    return tuple(1024 * sum(kib.get(name, 0) for name in names) for names in (("Pss",), ("Pss_Anon", "Pss_Shmem")))
