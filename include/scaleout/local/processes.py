"""Processes that we started: which of them run, and how they end. Each is signalled by its own number."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

MARK = "SCALEOUT_STACK_PART"


def runs(process: psutil.Process) -> bool:
    """False for a zombie too: the parent of a daemon is init, which may take its time to wait for it."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def send(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return


def wait_gone(family: Sequence[psutil.Process], limit_s: float) -> bool:
    deadline = time.monotonic() + limit_s
    while any(map(runs, family)):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.02)
    return True


def end(family: Sequence[psutil.Process], number: int, limit_s: float) -> None:
    """Signals all, and kills what still runs after `limit_s`."""
    for process in family:
        send(process, number)
    wait_gone(family, limit_s)
    for process in filter(runs, family):
        send(process, signal.SIGKILL)
    wait_gone(family, limit_s)


def with_descendants(process: psutil.Process) -> list[psutil.Process]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


@dataclass(frozen=True)
class Daemon:
    """A program that outlives the command that starts it. Its number and its log are kept in `folder`.

    A number is believed only together with the moment at which its process was born, since numbers come again.
    """

    name: str
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "logs" / f"{self.name}.log"

    @property
    def pid_file(self) -> Path:
        return self.folder / f"{self.name}.pid"

    def start(self, command: Sequence[str], environment: dict[str, str], **how: Any) -> None:
        """Starts it in a session of its own. `how` goes to Popen."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        marks = {MARK: self._mark, "SPT_NOENV": "1"}  # setproctitle would else write over the environment, and the mark
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command, env={**environment, **marks}, cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True, **how,
            )  # fmt: skip
        self.pid_file.write_text(f"{process.pid} {_birth(process.pid)}\n")
        process.returncode = 0  # it outlives us, so Popen must not miss a wait

    def process(self) -> psutil.Process | None:
        """The running process that `start` started, or None."""
        try:
            pid, birth = self.pid_file.read_text().strip().split(" ", 1)
            process = psutil.Process(int(pid))
            return process if _birth(int(pid)) == birth and runs(process) else None
        except (OSError, ValueError, psutil.Error):
            return None

    def has_died(self) -> bool:
        """It was started, not stopped, and does not run."""
        return self.pid_file.exists() and self.process() is None

    def family(self) -> list[psutil.Process]:
        """The process, its descendants, and descendants that it left behind when it died."""
        process = self.process()
        family = with_descendants(process) if process else []
        return family + [left for left in psutil.process_iter() if left not in family and self._left(left)]

    def forget(self) -> None:
        self.pid_file.unlink(missing_ok=True)

    def last_words(self, lines: int = 8) -> str:
        """The end of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    @property
    def _mark(self) -> str:
        return f"{self.name} of {self.folder}"

    def _left(self, process: psutil.Process) -> bool:
        try:
            return process.environ().get(MARK) == self._mark and runs(process)
        except (OSError, psutil.Error):  # another user's
            return False


def _birth(pid: int) -> str:
    """Ticks since the boot, and the boot. Raises OSError when there is no such process."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return f"{ticks} {Path('/proc/sys/kernel/random/boot_id').read_text().strip()}"
