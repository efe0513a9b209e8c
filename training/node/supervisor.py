"""The node's end of the gang protocol.

Usage: supervisor.py start FOLDER            reads the job (one line of JSON) on standard input, makes FOLDER, which must be
                                             new, says {"ready": …}, and after the word "go" starts the gang's part and
                                             attaches to it
       supervisor.py attach FOLDER OFFSET    attaches to the part that runs there, from byte OFFSET of its log
       supervisor.py state FOLDER            says {"part": "absent", "running", "over" or "dead"}

Attached, it prints one JSON object per line: {"ready": the node's Unix time}, {"log": text, "end": byte offset after it},
at last {"exit": {…}}, or {"dead": why}, or {"superseded": true} when a newer session has taken over. It reads words:
"renew" keeps the lease and is answered by {"renewed": true, "idle_s": seconds without progress}, "stop" ends the gang,
"stall" ends it after its stacks are collected. The end of standard input only detaches.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.dont_write_bytecode = True

from training.node import leftovers, ticket
from training.node.descendants import end_all
from training.node.gang_part import LEASE_FILE, RESERVE_BYTES, RESERVE_FILE
from training.node.guardian import OWN_LOG, PIDS_FILE, guard
from training.node.session import Session, Words, part_state, say
from training.wire.job import JOB_FILE, RUN_FOLDER_VARIABLE, Job
from training.wire.schema import WireError, from_dict, write_json

JOB_LIMIT_S = 60.0
START_LIMIT_S = 20.0
TICK_S = 0.01


def start(folder: Path, words: Words) -> int:
    job = from_dict(Job, json.loads(words.next_line(JOB_LIMIT_S)), "standard input")
    folder.mkdir(parents=True)
    write_json(folder / JOB_FILE, job)
    (folder / LEASE_FILE).touch()
    with (folder / RESERVE_FILE).open("wb") as reserve:
        os.posix_fallocate(reserve.fileno(), 0, RESERVE_BYTES)
    ticket.take(folder)
    end_all(lambda: leftovers.of_earlier_gangs(folder), job.grace_s)
    _say_ready()
    # Longer than the other nodes may take to get ready, and not for ever: nobody may be home any more.
    if words.next_line(job.lease_s + job.grace_s) != "go":
        return 0
    with ticket.held(folder) as ours:
        if not ours:
            raise OSError("a newer launch has taken this node; nothing was started")
        os.utime(folder / LEASE_FILE)
        _start_guardian(folder)
    return Session(folder, words, 0).run()


def attach(folder: Path, words: Words, offset: int) -> int:
    _say_ready()
    return Session(folder, words, offset).run()


def _start_guardian(folder: Path) -> None:
    with (folder / OWN_LOG).open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "guard", str(folder)],
            env={**os.environ, RUN_FOLDER_VARIABLE: str(folder)},
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + START_LIMIT_S
    while not (folder / PIDS_FILE).exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise OSError(f"the supervisor did not start: see {folder / OWN_LOG}")
        time.sleep(TICK_S)


def _say_ready() -> None:
    say({"ready": time.time()})


def run(action: str, folder: Path, rest: list[str]) -> int:
    if action == "guard":
        guard(folder)
        return 0
    if action == "state":
        say({"part": part_state(folder)})
        return 0
    if action == "start":
        return start(folder, Words())
    return attach(folder, Words(), int(rest[0]))


def main() -> int:
    action, folder, *rest = sys.argv[1:]
    os.umask(0o077)
    try:
        return run(action, Path(folder), rest)
    except BrokenPipeError:  # the other end has gone; the gang lives on under its lease
        return 0
    except FileExistsError:
        print(f"{folder} exists: a trial never starts twice in one folder", file=sys.stderr)
    except (OSError, WireError, ValueError) as error:
        print(f"{folder}: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
