"""What a rank shows of itself while it works: touches of its event log, and stacks when it is asked for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, time
from pathlib import Path
from training.common import life, program

def waits_for_its_peers():
    print("waits", flush=True)
    time.sleep(60)

def work(write):
    print("begins", flush=True)
    sys.stdin.readline()
    life.beat()
    waits_for_its_peers()

program.run(work, Path(sys.argv[1]) if sys.argv[1:] else None)
"""


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=CHECKOUT, env={**os.environ, "RANK": "0", **environment},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def said(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{line}\n"


def go_on(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    said(process, "waits")


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A rank in a run folder, which is `tmp_path`."""
    process = start(str(tmp_path), SCALEOUT_RUN_FOLDER=str(tmp_path))
    yield process
    process.kill()
    process.communicate()


def test_a_beat_touches_the_event_log_and_adds_nothing(rank: subprocess.Popen[str], tmp_path: Path) -> None:
    said(rank, "begins")
    log = tmp_path / "rank0" / "events.jsonl"
    os.utime(log, (0, 0))
    go_on(rank)
    assert log.stat().st_mtime == pytest.approx(time.time(), abs=20)
    assert log.read_text() == ""


def test_on_sigusr1_a_rank_writes_its_stacks_into_the_run_folder_and_goes_on(
    rank: subprocess.Popen[str], tmp_path: Path
) -> None:
    said(rank, "begins")
    go_on(rank)
    rank.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + 20
    while "waits_for_its_peers" not in (tmp_path / "stacks.txt").read_text():
        assert time.monotonic() < deadline and rank.poll() is None
        time.sleep(0.05)
    assert rank.poll() is None


def test_outside_of_a_run_folder_the_stacks_go_to_stderr() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "SCALEOUT_RUN_FOLDER"}
    process = start(**environment)
    try:
        said(process, "begins")
        go_on(process)
        process.send_signal(signal.SIGUSR1)
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any("waits_for_its_peers" in line for line in lines)
    finally:
        process.kill()
        process.communicate()
