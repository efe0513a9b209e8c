"""The supervisor by itself: attaching, stopping, and jobs that it refuses."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest
from private_cluster import carrying, is_running

from scaleout import settings

Start = Callable[..., "Session"]


class Session:
    """A supervisor program, and the words between it and us: no line is lost, however its writes were cut."""

    def __init__(self, *arguments: str | Path) -> None:
        program = settings.training_dir() / "node" / "supervisor.py"
        self.process = subprocess.Popen(
            [settings.node_python(), program, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._said: queue.Queue[str] = queue.Queue()
        self._complaints: queue.Queue[str] = queue.Queue()
        streams = (self.process.stdout, self._said), (self.process.stderr, self._complaints)
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in streams]
        for reader in self._readers:
            reader.start()

    @staticmethod
    def _read(stream: TextIO, lines: queue.Queue[str]) -> None:
        with stream:
            for line in stream:
                lines.put(line)

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def begin(self, text: str = "") -> None:
        """Hands a job over, if it takes one, and lets the part go when the supervisor is ready."""
        self.say(text)
        ready = self.heard()["ready"]
        assert 0 <= time.time() - ready < 20
        if text:
            self.say("go\n")

    def heard(self) -> dict[str, Any]:
        return json.loads(self._said.get(timeout=60))

    def end(self, text: str = "") -> tuple[int, list[dict[str, Any]], str]:
        """Its exit status, what else it said, and its complaints."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it may have ended before it was told all
            self.say(text)
            self.process.stdin.close()
        status = self._wait()
        rest, complaints = ([lines.get() for _ in range(lines.qsize())] for lines in (self._said, self._complaints))
        return status, [json.loads(line) for line in rest], "".join(complaints).strip()

    def _wait(self) -> int:
        status = self.process.wait(timeout=20)
        for reader in self._readers:
            reader.join(timeout=20)
            assert not reader.is_alive()
        return status

    def kill(self) -> None:
        assert self.process.stdin is not None
        self.process.kill()
        self._wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()


@pytest.fixture
def session() -> Iterator[Start]:
    started: list[Session] = []

    def start(*arguments: str | Path) -> Session:
        started.append(Session(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def job(run_id: str, script: str, **changes: Any) -> str:
    document = {
        "run_id": run_id,
        "trial": "t",
        "node": "node1",
        "node_rank": 0,
        "nodes": ["node1"],
        "release": "r",
        "command": ["sh", "-c", script],
        "cwd": "/",
        "environment": {},
        "lease_s": 20.0,
        "grace_s": 1.0,
        "timeout_s": None,
        "telemetry_interval_s": 1.0,
    }
    return json.dumps({**document, **changes}) + "\n"


def test_one_that_attaches_again_hears_everything_from_the_byte_that_it_names(
    session: Start, run_id: str, tmp_path: Path
) -> None:
    first = session("start", tmp_path / "a" / "run")
    first.begin(job(run_id, "echo one; sleep 0.8; echo two"))
    assert first.heard() == {"log": "one", "end": 4}
    first.process.kill()
    again = session("attach", tmp_path / "a" / "run", "4")
    again.begin()
    again.say("renew\n")
    status, said, _ = again.end()
    assert said[0]["renewed"] and 0 <= said[0]["idle_s"] < 5
    assert (status, said[1], said[2]["exit"]["state"]) == (0, {"log": "two", "end": 8}, "succeeded")
    status, said, _ = session("attach", tmp_path / "a" / "run", "0").end()
    assert [line["log"] for line in said[1:-1]] == ["one", "two"]


def test_nothing_starts_before_the_word_and_never_without_it(session: Start, run_id: str, tmp_path: Path) -> None:
    status, said, _ = session("start", tmp_path / "run").end(job(run_id, f"touch {tmp_path}/started"))
    assert (status, list(said[0]), said[1:]) == (0, ["ready"], [])
    assert not (tmp_path / "started").exists()
    assert state(session, tmp_path / "run") == "dead"


def test_a_word_that_nobody_says_is_not_waited_for_for_ever(session: Start, run_id: str, tmp_path: Path) -> None:
    one = session("start", tmp_path / "run")
    one.say(job(run_id, f"touch {tmp_path}/started", lease_s=0.5, grace_s=0.5))
    assert "ready" in one.heard()
    assert one.process.wait(timeout=20) == 0
    assert not (tmp_path / "started").exists()


def test_the_newest_session_owns_the_part(session: Start, run_id: str, tmp_path: Path) -> None:
    first = session("start", tmp_path / "run")
    first.begin(job(run_id, "echo up; sleep 1; echo done"))
    assert first.heard()["log"] == "up"
    second = session("attach", tmp_path / "run", "0")
    second.begin()
    assert second.heard()["log"] == "up"
    status, said, _ = first.end("stop\n")
    assert (status, said) == (0, [{"superseded": True}])
    status, said, _ = second.end()
    assert [said[0]["log"], said[1]["exit"]["state"]] == ["done", "succeeded"]


def test_a_part_is_absent_running_over_or_dead(session: Start, run_id: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert state(session, folder) == "absent"
    one = session("start", folder)
    one.begin(job(run_id, "echo up; sleep 60"))
    one.heard()
    assert state(session, folder) == "running"
    one.end("stop\n")
    assert state(session, folder) == "over"
    (folder / "exit.json").unlink()
    assert state(session, folder) == "dead"


@pytest.mark.parametrize(
    ("victims", "told"),
    [
        (["holder"], ("lost", "its supervisor ended: killed by SIGKILL")),
        (["guardian"], ("lost", "its guardian was killed")),
        (["guardian", "holder"], "its supervisor was killed, with its guardian; 3 processes were ended"),
    ],
)
def test_no_rank_outlives_a_supervisor_that_is_killed(
    session: Start, run_id: str, tmp_path: Path, victims: list[str], told: Any
) -> None:
    one = session("start", tmp_path / "run")
    one.begin(job(run_id, "setsid sleep 60 & echo up; sleep 60", grace_s=0.5))
    one.heard()
    pids = json.loads((tmp_path / "run" / "supervisor.json").read_text())
    for victim in victims:
        os.kill(pids[victim]["pid"], signal.SIGKILL)
    last = one.end()[1][-1]
    assert (last["dead"] if "dead" in last else (last["exit"]["state"], last["exit"]["reason"])) == told
    assert carrying(run_id) == []


# As torchrun does it: ranks in sessions of their own, asked for now and then; or by a parent that asks at once.
LAUNCHER = """
import os, subprocess, sys, time
start = lambda rank: subprocess.Popen(["sleep", "60"], env={**os.environ, "RANK": str(4 + rank), "LOCAL_RANK": str(rank)})
ranks = [start(rank) for rank in (0, 1)]
print(*(rank.pid for rank in ranks), flush=True)
print("[rank 5] of rank 5", "[rank 4] of rank 4", sep=chr(10), flush=True)
while all(rank.poll() is None for rank in ranks):
    time.sleep(float(sys.argv[1])) if float(sys.argv[1]) else os.waitid(os.P_ALL, 0, os.WEXITED)
sys.exit(1)
"""


@pytest.mark.parametrize(("pause_s", "told"), [("0.3", ""), ("0", "its process ended; its launcher knows how")])
def test_a_rank_that_is_killed_is_named_though_it_had_no_time_to_tell(
    session: Start, run_id: str, tmp_path: Path, pause_s: str, told: str
) -> None:
    one = session("start", tmp_path / "run")
    one.begin(job(run_id, "", command=["python3", "-c", LAUNCHER, pause_s]))
    pids = [int(word) for word in one.heard()["log"].split()]
    time.sleep(0.5)
    os.kill(pids[1], signal.SIGSEGV)
    status = one.end()[1][-1]["exit"]
    error = status["rank_error"]
    assert status["log_tail"] == ["[rank 5] of rank 5"]
    assert error["rank"] == 5 and error["error"] in ("killed by SIGSEGV", told)


# A rank as the real torchrun starts it; rank 1 ends before anybody can have seen that it began.
SHORT_RANK = """
import os, sys, time
if os.environ["RANK"] != "1":
    time.sleep(30)
print(f"[rank {os.environ['RANK']}] here", flush=True)
HOW
"""


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("os._exit(9)", "exit status 9"),
        ("os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
        ("sys.exit('there is no data set in /data')", "exit status 1"),
    ],
)
def test_a_rank_that_ends_as_soon_as_it_began_is_named_with_its_status(
    session: Start, run_id: str, tmp_path: Path, how: str, told: str
) -> None:
    program = tmp_path / "rank.py"
    program.write_text(SHORT_RANK.replace("HOW", how))
    torchrun = [str(settings.node_python()), "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    prefix = ["--tee", "3", "--log-line-prefix-template", "[rank ${rank}] "]
    one = session("start", tmp_path / "run")
    one.begin(job(run_id, "", command=[*torchrun, *prefix, "--master-port", "0", str(program)]))
    status = one.end()[1][-1]["exit"]
    assert status["rank_error"] | {"t_wall_s": 0} == {"rank": 1, "t_wall_s": 0, "error": told}
    assert status["started_wall_s"] - 1 <= status["rank_error"]["t_wall_s"] <= status["ended_wall_s"]
    assert all(line.startswith("[rank 1] ") for line in status["log_tail"])
    assert ("no data set" in how) == any("no data set" in line for line in status["log_tail"])


def test_what_an_earlier_gang_left_under_the_same_root_is_ended_before_the_next(
    session: Start, run_id: str, tmp_path: Path
) -> None:
    folders = [tmp_path / "runs" / "slug" / f"trial-t{i}" / "node1" for i in range(2)]
    first = session("start", folders[0])
    first.begin(job(run_id, "trap '' TERM; echo $$; while :; do sleep 1; done", grace_s=0.5))
    left = int(first.heard()["log"])
    first.process.kill()
    second = session("start", folders[1])
    second.begin(job(run_id, "echo up"))
    assert second.end()[1][-1]["exit"]["state"] == "succeeded"
    assert not is_running(left)


def test_a_launch_that_is_told_to_go_after_a_newer_one_has_come_starts_nothing(
    session: Start, run_id: str, tmp_path: Path
) -> None:
    folders = [tmp_path / "runs" / "slug" / f"trial-t{i}" / "node1" for i in range(2)]
    held_up = session("start", folders[0])
    held_up.say(job(run_id, f"touch {tmp_path}/doubled"))
    assert "ready" in held_up.heard()
    newer = session("start", folders[1])
    newer.begin(job(run_id, "echo up; sleep 60"))
    newer.heard()
    status, said, complaint = held_up.end("go\n")
    assert (status, said) == (1, []) and "a newer launch has taken this node; nothing was started" in complaint
    assert newer.end("stop\n")[1][-1]["exit"]["state"] == "stopped"
    assert not (tmp_path / "doubled").exists()


def test_nodes_may_share_a_home(session: Start, run_id: str, tmp_path: Path) -> None:
    parts = [session("start", tmp_path / "runs" / "slug" / "trial-t1" / name) for name in ("node1", "node2")]
    for part, name in zip(parts, ("node1", "node2"), strict=True):
        part.say(job(run_id, "echo up; sleep 0.5", node=name))
        assert "ready" in part.heard()
    for part in parts:
        assert part.end("go\n")[1][-1]["exit"]["state"] == "succeeded"


def test_a_stopped_rank_ends_within_the_grace_period(session: Start, run_id: str, tmp_path: Path) -> None:
    one = session("start", tmp_path / "run")
    one.begin(job(run_id, "trap 'echo tidy; exit 0' TERM; kill -STOP $$; while :; do sleep 0.05; done", grace_s=10.0))
    time.sleep(0.5)
    said = one.end("stop\n")[1]
    assert [line["log"] for line in said[:-1]] == ["tidy"]


STALLED = """
import faulthandler, os, pathlib, signal, time
folder = pathlib.Path(os.environ["SCALEOUT_RUN_FOLDER"])
faulthandler.register(signal.SIGUSR1, file=(folder / "stacks.txt").open("a"))
(folder / "rank0").mkdir()
event = '{"v": 1, "kind": "clock_start", "rank": 0, "t_wall_s": 1.0, "t_mono_s": 1.0, "read_bytes": null}'
(folder / "rank0" / "events.jsonl").write_text(event + chr(10))
print("up", flush=True)
def waits_for_ever():
    time.sleep(60)
waits_for_ever()
"""


def test_a_part_that_stalls_leaves_its_stacks_and_where_it_stood(session: Start, run_id: str, tmp_path: Path) -> None:
    one = session("start", tmp_path / "run")
    one.begin(job(run_id, "", command=[str(settings.node_python()), "-c", STALLED]))
    one.heard()
    status = one.end("stall\n")[1][-1]["exit"]
    assert status["state"] == "stalled"
    assert [(rank["rank"], rank["last_event"]) for rank in status["progress"]] == [(0, "clock_start")]
    stacks = (tmp_path / "run" / "stacks.txt").read_text()
    assert "in waits_for_ever" in stacks and "== rank None, process" in stacks


def test_a_rank_that_was_suspended_is_known_as_such(session: Start, run_id: str, tmp_path: Path) -> None:
    one = session("start", tmp_path / "run")
    rank = shlex.join(["env", "RANK=0", "LOCAL_RANK=0", str(settings.node_python()), "-c", STALLED])
    one.begin(job(run_id, f"{rank} & wait"))
    one.heard()
    (pid,) = (process.pid for process in carrying(run_id) if process.environ().get("RANK") == "0")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.5)
    status = one.end("stall\n")[1][-1]["exit"]
    assert [(rank["rank"], rank["suspended"]) for rank in status["progress"]] == [(0, True)]
    assert "in waits_for_ever" in (tmp_path / "run" / "stacks.txt").read_text()


def test_a_progress_bar_comes_as_its_last_state(session: Start, run_id: str, tmp_path: Path) -> None:
    one = session("start", tmp_path / "run")
    one.begin(job(run_id, r"printf 'a\r b\r c\nwindows\r\n 1%%\r 2%%\r'"))
    assert [line["log"] for line in one.end()[1][:-1]] == [" c", "windows", " 2%"]


def test_a_full_disk_does_not_hide_how_it_ended(session: Start, run_id: str, small_disk: Path) -> None:
    one = session("start", small_disk / "run")
    script = "echo up; head -c 3000000 /dev/zero > fill; echo no room >&2; sleep 0.5; exit 3"
    one.begin(job(run_id, script, cwd=str(small_disk), telemetry_interval_s=0.1))
    said = one.end()[1]
    status = said[-1]["exit"]
    assert (status["state"], status["exit_code"]) == ("failed", 3)
    assert status["reason"] == f"exit status 3; the disk of {small_disk}/run is full" and status["disk_full"]
    again = session("attach", small_disk / "run", "0").end()[1]
    assert again[-1] == said[-1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for one megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def state(session: Start, folder: Path) -> str:
    return session("state", folder).end()[1][0]["part"]


def test_the_last_line_is_told_whole_though_it_lacks_its_end(session: Start, run_id: str, tmp_path: Path) -> None:
    one = session("start", tmp_path / "run")
    one.begin(job(run_id, "printf half; sleep 0.3; printf ' and half'"))
    status, said, _ = one.end()
    assert (status, said[0]) == (0, {"log": "half and half", "end": 13})


def test_the_end_of_standard_input_only_detaches(session: Start, run_id: str, tmp_path: Path) -> None:
    status, said, _ = session("start", tmp_path / "run").end(job(run_id, "sleep 0.5; echo done") + "go\n")
    assert (status, said[1]["log"], said[2]["exit"]["state"]) == (0, "done", "succeeded")


def test_a_word_may_come_in_pieces(session: Start, run_id: str, tmp_path: Path) -> None:
    one = session("start", tmp_path / "run")
    text = job(run_id, "echo up; sleep 60")
    one.say(text[:100])
    one.begin(text[100:])
    assert one.heard()["log"] == "up"
    one.say("renew\nst")
    one.say("op\n")
    assert one.heard()["renewed"]
    assert one.heard()["exit"]["state"] == "stopped"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("\n", "Expecting value"),
        ("", "Expecting value"),
        ("[]\n", "expected an object for Job"),
        (job("r", "true", priority=9), "Job has no key 'priority'"),
        (job("r", "true", lease_s="long"), "lease_s: expected float, found str 'long'"),
    ],
)
def test_a_job_that_will_not_do_is_refused_and_leaves_no_folder(
    session: Start, tmp_path: Path, text: str, complaint: str
) -> None:
    status, said, complained = session("start", tmp_path / "run").end(text)
    assert (status, said) == (1, [])
    assert complaint in complained and len(complained.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_attaching_to_nothing_is_told(session: Start, tmp_path: Path) -> None:
    status, said, complained = session("attach", tmp_path / "nothing", "0").end()
    assert (status, said[1:]) == (1, [])
    assert "No such file or directory" in complained and str(tmp_path / "nothing") in complained


def test_the_folder_is_closed_to_others(session: Start, run_id: str, tmp_path: Path) -> None:
    session("start", tmp_path / "run").end(job(run_id, "echo secret") + "go\n")
    assert {path.name: path.stat().st_mode & 0o077 for path in [tmp_path / "run", *(tmp_path / "run").iterdir()]} == {
        path.name: 0 for path in [tmp_path / "run", *(tmp_path / "run").iterdir()]
    }
