"""The node's end of the gang protocol.

Usage: supervisor.py start FOLDER     reads the job (one line of JSON) on standard input, starts the gang's part in
                                      FOLDER, which must be new, and then attaches to it
       supervisor.py attach FOLDER    attaches to the part that runs there, from the first line of its log

Attached, it prints one JSON object per line: {"log": text} for each line of the log, at last {"exit": {…}}. It reads
words on standard input: "renew" keeps the lease, "stop" ends the gang. The end of standard input only detaches.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True

from training.node.gang_part import LEASE_FILE, STOP_FILE, GangPart
from training.wire.job import EXIT_FILE, JOB_FILE, LOG_FILE, Job
from training.wire.schema import WireError, from_dict, read_json, write_json

POLL_S = 0.05
MOST_BYTES = 65536
PID_FILE = "supervisor.pid"


class Words:
    """Lines from standard input, without a thread and without waiting longer than asked."""

    def __init__(self) -> None:
        self._buffer = b""
        self._open = True

    def next_line(self) -> str:
        """Waits for a line; what came of it when standard input ends first."""
        while self._open and b"\n" not in self._buffer:
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


def start(folder: Path, words: Words) -> None:
    job = from_dict(Job, json.loads(words.next_line()), "standard input")
    folder.mkdir(parents=True)
    write_json(folder / JOB_FILE, job)
    (folder / LEASE_FILE).touch()
    with (folder / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "hold", str(folder)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    (folder / PID_FILE).write_text(str(process.pid))


def hold(folder: Path) -> None:
    GangPart(read_json(Job, folder / JOB_FILE), folder).hold()


def attach(folder: Path, words: Words) -> int:
    pid = int((folder / PID_FILE).read_text())
    position = 0
    while True:
        over = (folder / EXIT_FILE).exists()
        alive = _is_running(pid)
        position, more = _print_log(folder / LOG_FILE, position, whole=over)
        if over and not more:
            _say({"exit": json.loads((folder / EXIT_FILE).read_text())})
            return 0
        if not alive and not more and not (folder / EXIT_FILE).exists():
            last = (folder / "supervisor.log").read_text(errors="replace").strip().splitlines()[-1:]
            print(f"the supervisor {pid} died: {last[0] if last else 'it said nothing'}", file=sys.stderr)
            return 1
        for word in words.within(0 if more else POLL_S):
            if word == "renew":
                (folder / LEASE_FILE).touch()
            elif word == "stop":
                (folder / STOP_FILE).touch()


def _print_log(log: Path, position: int, *, whole: bool) -> tuple[int, bool]:
    """Prints lines from `position` on, and gives the position after them and whether more are there.

    Not all at once, so that a talkative rank cannot keep the orchestrator's words waiting, and a line of more than
    MOST_BYTES in pieces, which both ends can hold. The last line without its end is printed only when the log is `whole`.
    """
    if not log.exists():
        return position, False
    with log.open("rb") as data:
        data.seek(position)
        chunk = data.read(MOST_BYTES)
    more = len(chunk) == MOST_BYTES
    end = chunk.rfind(b"\n") + 1
    if (more and not end) or (whole and not more):
        end = len(chunk)
    for line in chunk[:end].decode("utf-8", "replace").splitlines():
        _say({"log": line})
    return position + end, more


def _say(message: dict) -> None:
    print(json.dumps(message), flush=True)


def _is_running(pid: int) -> bool:
    """False for a process that is gone and, since nobody may have waited for it, for a zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def main() -> int:
    action, folder = sys.argv[1], Path(sys.argv[2])
    os.umask(0o077)
    words = Words()
    try:
        if action == "hold":
            hold(folder)
            return 0
        if action == "start":
            start(folder, words)
        return attach(folder, words)
    except BrokenPipeError:  # the other end has gone; the gang lives on under its lease
        return 0
    except FileExistsError:
        print(f"{folder} exists: a trial never starts twice in one folder", file=sys.stderr)
    except (OSError, WireError, ValueError) as error:
        print(f"{folder}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
