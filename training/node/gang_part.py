"""Holds this node's part of a gang: starts the launcher, watches the lease, ends every descendant, writes the exit status.

A child subreaper: whatever the launcher's tree becomes, it stays below this process, and nothing of it outlives it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil

from training.node.causes import first_rank_error
from training.node.telemetry import Telemetry
from training.wire.job import (
    EXIT_FILE,
    LOG_FILE,
    NODE_VARIABLE,
    RUN_ID_VARIABLE,
    TELEMETRY_FILE,
    ExitState,
    ExitStatus,
    Job,
)
from training.wire.schema import write_json

LEASE_FILE = "lease"
STOP_FILE = "stop"
PR_SET_CHILD_SUBREAPER = 36
TICK_S = 0.05
KILL_LIMIT_S = 30.0
TAIL_LINES = 25
TAIL_BYTES = 65536
COMMAND_NOT_FOUND = 127


class Lease:
    """Renewed by touching a file; measured on the monotonic clock, so that a stepped wall clock ends no gang."""

    def __init__(self, path: Path, lease_s: float) -> None:
        self._path, self._lease_s = path, lease_s
        self._seen, self._since = self._stamp(), time.monotonic()

    def expired(self) -> bool:
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen, self._since = stamp, time.monotonic()
        return time.monotonic() - self._since > self._lease_s

    def _stamp(self) -> int:
        return self._path.stat().st_mtime_ns


class GangPart:
    """One node's processes of one trial, in its run folder."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._job, self._folder = job, folder
        self._asked_to_stop = False
        self._ended: set[int] = set()

    def hold(self) -> ExitStatus:
        """Runs the job to its end, whatever that is, and leaves no process behind. Writes and gives the exit status."""
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")
        signal.signal(signal.SIGTERM, self._on_term)
        started = time.time()
        try:
            launcher = self._start()
        except OSError as error:
            status = self._status("failed", f"the command could not be started: {error}", COMMAND_NOT_FOUND, started)
        else:
            with Telemetry(self._folder / TELEMETRY_FILE, self._job.telemetry_interval_s, self._descendants):
                state, reason = self._watch(launcher)
                self._end_descendants(launcher)
            status = self._status(state, reason, launcher.returncode, started)
        write_json(self._folder / EXIT_FILE, status)
        return status

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **self._job.environment,
            RUN_ID_VARIABLE: self._job.run_id,
            NODE_VARIABLE: self._job.node,
        }
        with (self._folder / LOG_FILE).open("ab") as log:
            return subprocess.Popen(
                self._job.command, cwd=self._job.cwd, env=environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _watch(self, launcher: subprocess.Popen[bytes]) -> tuple[ExitState, str]:
        lease = Lease(self._folder / LEASE_FILE, self._job.lease_s)
        deadline = None if self._job.timeout_s is None else time.monotonic() + self._job.timeout_s
        while True:
            code = launcher.poll()
            if code is not None:
                return ("succeeded", "exit status 0") if code == 0 else ("failed", _how_it_ended(code))
            if self._asked_to_stop or (self._folder / STOP_FILE).exists():
                return "stopped", "stopped on request"
            if lease.expired():
                return "lease_expired", f"nobody renewed the lease for {self._job.lease_s:g} s"
            if deadline is not None and time.monotonic() > deadline:
                return "timed_out", f"still running after its limit of {self._job.timeout_s:g} s"
            _reap_orphans(launcher)
            time.sleep(TICK_S)

    def _descendants(self) -> list[psutil.Process]:
        return psutil.Process().children(recursive=True)

    def _end_descendants(self, launcher: subprocess.Popen[bytes]) -> None:
        """TERM, the grace period, then KILL until none remain; each round looks again, for what was forked meanwhile."""
        deadline = time.monotonic() + self._job.grace_s
        limit = deadline + KILL_LIMIT_S
        termed: set[int] = set()
        while (alive := self._living_descendants()) and time.monotonic() < limit:
            late = time.monotonic() >= deadline
            for process in alive:
                if late or process.pid not in termed:
                    termed.add(process.pid)
                    self._ended.add(process.pid)
                    _signal(process, signal.SIGKILL if late else signal.SIGTERM)
            time.sleep(TICK_S)
        _reap_orphans(launcher)

    def _living_descendants(self) -> list[psutil.Process]:
        """All descendants but the dead ones, whom nobody has waited for yet."""
        alive = []
        for process in self._descendants():
            try:
                if process.status() != psutil.STATUS_ZOMBIE:
                    alive.append(process)
            except psutil.NoSuchProcess:
                continue
        return alive

    def _status(self, state: ExitState, reason: str, code: int | None, started: float) -> ExitStatus:
        return ExitStatus(
            node=self._job.node,
            state=state,
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            reason=reason,
            started_wall_s=started,
            ended_wall_s=time.time(),
            ended_processes=len(self._ended),
            left_processes=len(self._living_descendants()),
            rank_error=first_rank_error(self._folder),
            log_tail=_tail(self._folder / LOG_FILE),
        )

    def _on_term(self, *_: object) -> None:
        self._asked_to_stop = True


def _reap_orphans(launcher: subprocess.Popen[bytes]) -> None:
    """Waits for what died below us, without a look through /proc; the launcher's own status is left to its Popen."""
    while True:
        launcher.poll()
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None:
            return
        if dead.si_pid != launcher.pid:
            os.waitpid(dead.si_pid, 0)


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    names = {number.value: number.name for number in signal.Signals}  # most real-time signals have none
    return f"killed by {names.get(-code, f'signal {-code}')}"


def _tail(log: Path) -> list[str]:
    if not log.exists():
        return []
    with log.open("rb") as data:
        data.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return data.read().decode("utf-8", "replace").splitlines()[-TAIL_LINES:]


def _signal(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except psutil.NoSuchProcess:
        return
