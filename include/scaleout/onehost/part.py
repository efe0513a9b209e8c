"""A job under the supervisor of this host, to its end."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scaleout.errors import GangError
from training.wire.causes import told
from training.wire.job import ExitStatus, Job
from training.wire.schema import from_dict, to_dict

READY_LIMIT_S = 60.0
STOP_MARGIN_S = 40.0
RENEWAL_INTERVAL_S = 2.0
TICK_S = 0.2
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Wish:
    """Whether somebody wants the sweep to end."""

    stopped = False


@contextmanager
def heeded() -> Iterator[Wish]:
    """Ctrl-C, TERM and a closed terminal become a wish, as often as they come."""
    wish = Wish()

    def note(*_: object) -> None:
        wish.stopped = True

    before = {number: signal.signal(number, note) for number in SIGNALS}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_part(
    python: str,
    release: Path,
    folder: Path,
    job: Job,
    say: Callable[[str], None],
    wish: Wish,
    no_progress_s: float | None,
) -> None:
    """Runs a job in `folder`, which must be new; `say` gets each line of its log. Raises GangError unless it succeeded.

    When this process dies, the lease ends the job.
    """
    process = subprocess.Popen(
        [python, str(release / "training" / "node" / "supervisor.py"), "start", str(folder)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        start_new_session=True,  # a terminal's Ctrl-C is ours to pass on
    )  # fmt: skip
    with process:
        session = _Session(process, job, say, wish, no_progress_s)
        status = session.followed()
    if status.state != "succeeded":
        raise GangError("stopped on request" if wish.stopped else told(status))


class _Session:
    def __init__(
        self,
        process: subprocess.Popen[bytes],
        job: Job,
        say: Callable[[str], None],
        wish: Wish,
        no_progress_s: float | None,
    ) -> None:
        self._process, self._job, self._say, self._wish = process, job, say, wish
        self._no_progress_s = no_progress_s
        self._buffer = b""
        self._renewed_s = time.monotonic()
        self._deadline: float | None = time.monotonic() + READY_LIMIT_S
        self._asked: str | None = None

    def followed(self) -> ExitStatus:
        self._tell(json.dumps(to_dict(self._job)))
        while True:
            for message in self._messages():
                if "ready" in message:
                    self._deadline = None
                    self._tell("go")
                elif "log" in message:
                    self._say(message["log"])
                elif "renewed" in message:
                    self._end_if_idle(message["idle_s"])
                elif "exit" in message:
                    return from_dict(ExitStatus, message["exit"], self._job.node)
                else:
                    raise GangError(f"{self._job.node}: {message.get('dead', message)}")
            self._keep()

    def _messages(self) -> list[dict[str, Any]]:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], TICK_S)[0]:
            return []
        chunk = os.read(out.fileno(), 65536)
        if not chunk:
            raise GangError(f"{self._job.node}: {self._last_words()}")
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        return [json.loads(line) for line in lines if line.strip()]

    def _keep(self) -> None:
        """Renews the lease, passes the wish on, and waits for an answer no longer than it may take."""
        now = time.monotonic()
        if now - self._renewed_s > min(RENEWAL_INTERVAL_S, self._job.lease_s / 5) and self._deadline is None:
            self._renewed_s = now
            self._tell("renew")
        if self._wish.stopped:
            self._end("stop")
        if self._deadline is not None and now > self._deadline:
            self._process.kill()
            raise GangError(f"{self._job.node}: its supervisor does not answer; its lease ends what runs")

    def _end_if_idle(self, idle_s: float) -> None:
        if self._no_progress_s is not None and idle_s > self._no_progress_s:
            self._end("stall")

    def _end(self, word: str) -> None:
        if self._asked is None:
            self._asked = word
            self._deadline = time.monotonic() + self._job.grace_s + STOP_MARGIN_S
            self._tell(word)

    def _tell(self, word: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # it has ended; why, it has said

    def _last_words(self) -> str:
        assert self._process.stderr is not None
        lines = self._process.stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else "its supervisor ended without a word"
