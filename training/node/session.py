"""One orchestrator's session with the part of a gang that runs on this node: its log as it grows, and words for it."""

from __future__ import annotations

import json
import os
import select
import time
from pathlib import Path

from training.node import leftovers
from training.node.descendants import end_all
from training.node.gang_part import LEASE_FILE, STALL_FILE, STOP_FILE
from training.node.guardian import supervisors
from training.node.proc import boot_id
from training.node.progress import idleness
from training.wire.job import EXIT_FILE, JOB_FILE, LOG_FILE, Job, PartState
from training.wire.schema import read_json

POLL_S = 0.05
MOST_BYTES = 65536
BAR_INTERVAL_S = 10.0
FAREWELL_S = 5.0
OWNER_FILE = "owner"


class Words:
    """Lines from standard input, without a thread and without waiting longer than asked."""

    def __init__(self) -> None:
        self._buffer = b""
        self._open = True

    def next_line(self, limit_s: float) -> str:
        """Waits for a line; what came of it when standard input ends first, or nobody has said it within `limit_s`."""
        deadline = time.monotonic() + limit_s
        while self._open and b"\n" not in self._buffer and (left := deadline - time.monotonic()) > 0:
            if select.select([0], [], [], left)[0]:
                self._read()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode()

    def within(self, seconds: float) -> list[str]:
        """The whole lines that are there within `seconds`, which it always waits out when standard input has ended."""
        if select.select([0] if self._open else [], [], [], seconds)[0]:
            self._read()
        *lines, self._buffer = self._buffer.split(b"\n")
        return [line.decode() for line in lines]

    def _read(self) -> None:
        chunk = os.read(0, 65536)
        self._open = bool(chunk)
        self._buffer += chunk


class LogReader:
    """Lines of a log that grows, from a byte on.

    A line longer than MOST_BYTES comes in pieces, which both ends can hold. Of a progress bar, which rewrites its line by
    carriage returns, only the last state comes, and one every BAR_INTERVAL_S while it is being rewritten.
    """

    def __init__(self, path: Path, position: int) -> None:
        self._path, self._position = path, position
        self._next_bar = time.monotonic() + BAR_INTERVAL_S

    def lines(self, *, whole: bool) -> tuple[list[tuple[str, int]], bool]:
        """Lines, each with the position after it, and whether more are there already.

        The last line without its end is given only when the log is `whole`.
        """
        if not self._path.exists():
            return [], False
        with self._path.open("rb") as data:
            data.seek(self._position)
            chunk = data.read(MOST_BYTES)
        more = len(chunk) == MOST_BYTES
        *complete, rest = chunk.split(b"\n")
        found = [self._taken(line, 1) for line in complete]
        if rest and ((whole and not more) or (more and not complete)):
            found.append(self._taken(rest, 0))
        elif b"\r" in rest[:-1] and time.monotonic() > self._next_bar:
            found.append(self._taken(rest[: rest.rindex(b"\r", 0, -1) + 1], 0))
        return found, more

    def _taken(self, line: bytes, ending: int) -> tuple[str, int]:
        self._position += len(line) + ending
        self._next_bar = time.monotonic() + BAR_INTERVAL_S
        return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace"), self._position


class Session:
    """Attached from byte `offset` of the log on. The newest session owns the part; an older one is told, and ends."""

    def __init__(self, folder: Path, words: Words, offset: int) -> None:
        self._folder, self._words = folder, words
        self._supervisors = list(supervisors(folder).values())
        self._log = LogReader(folder / LOG_FILE, offset)
        self._idle = idleness(folder)
        self._own_stamp = self._take_over()

    def run(self) -> int:
        """To the part's end or the session's. Returns the program's exit status."""
        while True:
            over = (self._folder / EXIT_FILE).exists()
            alive = any(process.is_running() for process in self._supervisors)
            more = self._tell_log(whole=over)
            if over and not more:
                self._bid_farewell()
                return 0
            if not alive and not more and not (self._folder / EXIT_FILE).exists():
                return self._end_abandoned()
            for word in self._words.within(0 if more else POLL_S):
                if self._is_owner():
                    self._act(word)
            if not self._is_owner():
                say({"superseded": True})
                return 0

    def _act(self, word: str) -> None:
        if word == "renew":
            os.utime(self._folder / LEASE_FILE)
            say({"renewed": True, "idle_s": self._idle.seconds()})
        elif word == "stop":
            (self._folder / STOP_FILE).touch()
        elif word == "stall":
            (self._folder / STALL_FILE).touch()

    def _tell_log(self, *, whole: bool) -> bool:
        """Not all at once, so that a talkative rank cannot keep the orchestrator's words waiting."""
        found, more = self._log.lines(whole=whole)
        for line, end in found:
            say({"log": line, "end": end})
        return more

    def _bid_farewell(self) -> None:
        """The exit status, when the supervisors too have gone: then nothing of the part is left."""
        deadline = time.monotonic() + FAREWELL_S
        while any(process.is_running() for process in self._supervisors) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        say({"exit": json.loads((self._folder / EXIT_FILE).read_text())})

    def _end_abandoned(self) -> int:
        grace_s = read_json(Job, self._folder / JOB_FILE).grace_s
        ended = len(end_all(lambda: leftovers.of_folder(self._folder), grace_s))
        while self._tell_log(whole=True):
            pass
        restarted = "; the node was restarted" if self._supervisors[0].boot_id != boot_id() else ""
        say({"dead": f"its supervisor was killed, with its guardian{restarted}; {ended} processes were ended"})
        return 0

    def _take_over(self) -> int:
        """Ownership is the owner file's time stamp, which takes no room on a disk that may be full."""
        path = self._folder / OWNER_FILE
        path.touch()
        os.utime(path, ns=(0, time.time_ns()))
        return self._owner_stamp()

    def _is_owner(self) -> bool:
        return self._owner_stamp() == self._own_stamp

    def _owner_stamp(self) -> int:
        return (self._folder / OWNER_FILE).stat().st_mtime_ns


def part_state(folder: Path) -> PartState:
    """Whether a part was started in `folder`, and lives. `dead`: it was, and is gone without an exit status."""
    if not (folder / JOB_FILE).exists():
        return "absent"
    if (folder / EXIT_FILE).exists():
        return "over"
    try:
        return "running" if any(process.is_running() for process in supervisors(folder).values()) else "dead"
    except FileNotFoundError:
        return "dead"


def say(message: dict) -> None:
    print(json.dumps(message), flush=True)
