"""The supervisor by itself: attaching, stopping, and jobs that it refuses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scaleout import settings

Start = Callable[..., "Session"]


class Session:
    """A supervisor program, and the words between it and us."""

    def __init__(self, *arguments: str | Path) -> None:
        program = settings.training_dir() / "node" / "supervisor.py"
        self.process = subprocess.Popen(
            [settings.node_python(), program, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def say(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def heard(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def end(self, text: str = "") -> tuple[int, list[dict[str, Any]], str]:
        """Its exit status, what else it said, and its complaints."""
        out, err = self.process.communicate(text, timeout=20)
        return self.process.returncode, [json.loads(line) for line in out.splitlines()], err.strip()


@pytest.fixture
def session() -> Iterator[Start]:
    started: list[Session] = []

    def start(*arguments: str | Path) -> Session:
        started.append(Session(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.communicate()


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


def test_one_that_attaches_again_hears_everything_from_the_first_line(
    session: Start, run_id: str, tmp_path: Path
) -> None:
    first = session("start", tmp_path / "a" / "run")
    first.say(job(run_id, "echo one; sleep 0.8; echo two"))
    assert first.heard() == {"log": "one"}
    first.process.kill()
    again = session("attach", tmp_path / "a" / "run")
    again.say("renew\n")
    status, said, _ = again.end()
    assert (status, said[:2], said[2]["exit"]["state"]) == (0, [{"log": "one"}, {"log": "two"}], "succeeded")
    assert session("attach", tmp_path / "a" / "run").end() == (0, said, "")


def test_the_last_line_is_told_whole_though_it_lacks_its_end(session: Start, run_id: str, tmp_path: Path) -> None:
    one = session("start", tmp_path / "run")
    one.say(job(run_id, "printf half; sleep 0.3; printf ' and half'"))
    status, said, _ = one.end()
    assert (status, said[0]) == (0, {"log": "half and half"})


def test_the_end_of_standard_input_only_detaches(session: Start, run_id: str, tmp_path: Path) -> None:
    status, said, _ = session("start", tmp_path / "run").end(job(run_id, "sleep 0.5; echo done"))
    assert (status, said[0], said[1]["exit"]["state"]) == (0, {"log": "done"}, "succeeded")


def test_a_word_may_come_in_pieces(session: Start, run_id: str, tmp_path: Path) -> None:
    one = session("start", tmp_path / "run")
    text = job(run_id, "echo up; sleep 60")
    one.say(text[:100])
    one.say(text[100:])
    assert one.heard() == {"log": "up"}
    one.say("renew\nst")
    one.say("op\n")
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
    status, said, complained = session("attach", tmp_path / "nothing").end()
    assert (status, said) == (1, [])
    assert "No such file or directory" in complained and str(tmp_path / "nothing") in complained


def test_the_folder_is_closed_to_others(session: Start, run_id: str, tmp_path: Path) -> None:
    session("start", tmp_path / "run").end(job(run_id, "echo secret"))
    assert {path.name: path.stat().st_mode & 0o077 for path in [tmp_path / "run", *(tmp_path / "run").iterdir()]} == {
        path.name: 0 for path in [tmp_path / "run", *(tmp_path / "run").iterdir()]
    }
