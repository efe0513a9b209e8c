"""Holds this node's part of a gang: starts the launcher, watches the lease, ends every descendant, writes the exit status."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

from training.node.causes import first_rank_error
from training.node.descendants import TICK_S, adopt_orphans, all_descendants, end_descendants, living_descendants, reap
from training.node.launcher_log import completed, failures
from training.node.progress import collect_stacks, progress
from training.node.ranks import Ranks, describe_end
from training.node.telemetry import Telemetry
from training.node.unchanged import Unchanged
from training.wire.job import (
    EXIT_FILE,
    LOG_FILE,
    NODE_VARIABLE,
    RUN_FOLDER_VARIABLE,
    RUN_ID_VARIABLE,
    TELEMETRY_FILE,
    ExitState,
    ExitStatus,
    Job,
    RankError,
    RankProgress,
    rank_prefix,
)
from training.wire.schema import write_json

LEASE_FILE = "lease"
STOP_FILE = "stop"
STALL_FILE = "stall"
RESERVE_FILE = "exit.reserve"
RESERVE_BYTES = 65536
FULL_BYTES = 2 * RESERVE_BYTES
TAIL_LINES = 25
TAIL_BYTES = 2**20
COMMAND_NOT_FOUND = 127


class GangPart:
    """One node's processes of one trial, in its run folder."""

    def __init__(self, job: Job, folder: Path) -> None:
        self._job, self._folder = job, folder
        self._asked_to_stop = False
        self._guardian = os.getppid()
        self._started_wall_s = self._decided_wall_s = time.time()
        self._errors: list[RankError] = []
        self._progress: list[RankProgress] = []
        self._suspended: set[int] = set()
        self._ended: set[int] = set()

    def hold(self) -> None:
        """Runs the job to its end, whatever that is, leaves no process behind, and writes the exit status."""
        adopt_orphans()
        signal.signal(signal.SIGTERM, self._on_term)
        try:
            launcher = self._start()
        except OSError as error:
            self.write_exit("failed", f"the command could not be started: {error}", COMMAND_NOT_FOUND)
            return
        with Telemetry(self._folder / TELEMETRY_FILE, self._job.telemetry_interval_s, all_descendants):
            state, reason = self._watch(launcher)
            self._decided_wall_s = time.time()
            if state == "stalled":
                self._note_stall()
            self._ended = end_descendants(self._job.grace_s, launcher)
        self.write_exit(state, reason, launcher.returncode)

    def write_exit(self, state: ExitState, reason: str, code: int | None = None) -> None:
        """Writes how this part ended, into room that was kept for it: the disk may be full. `code`: the launcher's."""
        log = _last_lines(self._folder / LOG_FILE)
        seen = completed(self._errors, failures(log)) if state == "failed" else self._errors
        error = first_rank_error(self._folder, seen, self._decided_wall_s)
        disk_full = shutil.disk_usage(self._folder).free < FULL_BYTES
        status = ExitStatus(
            node=self._job.node,
            state=state,
            exit_code=code if code is not None and code >= 0 else None,
            signal=-code if code is not None and code < 0 else None,
            reason=reason + (f"; the disk of {self._folder} is full" if disk_full else ""),
            started_wall_s=self._started_wall_s,
            ended_wall_s=time.time(),
            ended_processes=len(self._ended),
            left_processes=len(living_descendants()),
            rank_error=error,
            log_tail=_tail(log, rank_prefix(error.rank) if error else ""),
            disk_full=disk_full,
            progress=self._progress or progress(self._folder),
        )
        (self._folder / RESERVE_FILE).unlink(missing_ok=True)
        write_json(self._folder / EXIT_FILE, status)

    def end_as_lost(self, reason: str) -> None:
        """In the place of a supervisor that is gone: ends what it held, and says so."""
        self._decided_wall_s = time.time()
        self._ended = end_descendants(self._job.grace_s)
        self.write_exit("lost", reason)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            **self._job.environment,
            RUN_ID_VARIABLE: self._job.run_id,
            NODE_VARIABLE: self._job.node,
            RUN_FOLDER_VARIABLE: str(self._folder),
        }
        with (self._folder / LOG_FILE).open("ab") as log:
            return subprocess.Popen(
                self._job.command, cwd=self._job.cwd, env=environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def _watch(self, launcher: subprocess.Popen[bytes]) -> tuple[ExitState, str]:
        lease = self._folder / LEASE_FILE  # renewed by touching it
        unrenewed = Unchanged(lambda: lease.stat().st_mtime_ns)
        deadline = None if self._job.timeout_s is None else time.monotonic() + self._job.timeout_s
        ranks = Ranks(launcher.pid)
        self._errors = ranks.errors
        try:
            while True:
                end = self._end_of(launcher) or self._end_by_word() or _end_by_clock(self._job, unrenewed, deadline)
                if end is not None:
                    self._suspended = ranks.suspended()
                    return end
                reap(launcher)
                ranks.wait(TICK_S)
        finally:
            ranks.close()

    def _end_of(self, launcher: subprocess.Popen[bytes]) -> tuple[ExitState, str] | None:
        code = launcher.poll()
        if code is None:
            return None
        return ("succeeded" if code == 0 else "failed"), describe_end(code)

    def _end_by_word(self) -> tuple[ExitState, str] | None:
        if os.getppid() != self._guardian:
            return "lost", "its guardian was killed"
        if self._asked_to_stop or (self._folder / STOP_FILE).exists():
            return "stopped", "stopped on request"
        if (self._folder / STALL_FILE).exists():
            return "stalled", "no rank of the gang made progress"
        return None

    def _note_stall(self) -> None:
        """Where each rank stood, before a signal lets one that was stopped go on; then the stacks."""
        self._progress = [replace(rank, suspended=rank.rank in self._suspended) for rank in progress(self._folder)]
        collect_stacks(self._folder)

    def _on_term(self, *_: object) -> None:
        self._asked_to_stop = True


def _end_by_clock(job: Job, unrenewed: Unchanged, deadline: float | None) -> tuple[ExitState, str] | None:
    if unrenewed.seconds() > job.lease_s:
        return "lease_expired", f"nobody renewed the lease for {job.lease_s:g} s"
    if deadline is not None and time.monotonic() > deadline:
        return "timed_out", f"still running after its limit of {job.timeout_s:g} s"
    return None


def _last_lines(log: Path) -> list[str]:
    if not log.exists():
        return []
    with log.open("rb") as data:
        data.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return data.read().decode("utf-8", "replace").splitlines()


def _tail(lines: list[str], prefix: str) -> list[str]:
    """The last that begin with `prefix`; the last of all where none does."""
    return ([line for line in lines if line.startswith(prefix)] or lines)[-TAIL_LINES:]
