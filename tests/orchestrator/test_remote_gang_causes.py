"""A gang of which a part fails: the others are ended, and the first cause is named."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import time
from pathlib import Path

import pytest
from gangs import Gang, bash, failure, on_both, slow_loop
from private_cluster import PrivateCluster

from scaleout import settings
from scaleout.errors import GangError
from scaleout.remote.gang import run_gang
from scaleout.remote.node import Node

SLEEP = bash("sleep 60")


def test_one_rank_fails_and_the_others_are_ended_within_seconds(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        falling = bash("for i in $(seq 100); do echo step $i; done; echo 'CUDA error: out of memory' >&2; exit 9")
        started = time.monotonic()
        sentence = await failure(gang, nodes, {"node1": SLEEP, "node2": falling})
        assert time.monotonic() - started < 5
        first, *tail = sentence.splitlines()
        assert first == "node2: failed: exit status 9; the end of its log:"
        assert tail[-2:] == ["    step 100", "    CUDA error: out of memory"]
        assert len(tail) <= 30
        assert (gang.exit_status(nodes[0]).state, gang.exit_status(nodes[0]).signal) == ("stopped", signal.SIGTERM)

    on_both(cluster, work)


def test_the_rank_that_failed_first_is_named_though_its_launcher_was_the_slower_to_end(
    cluster: PrivateCluster, gang: Gang
) -> None:
    async def work(nodes: list[Node]) -> None:
        folder = shlex.quote(str(Path(gang.folder(nodes[0])) / "rank0"))
        told = json.dumps(
            {
                "v": 1,
                "kind": "run_end",
                "rank": 0,
                "t_wall_s": 1.0,
                "t_mono_s": 1.0,
                "status": "failed",
                "error": "diverged",
            }
        )
        told_then_slow = f"mkdir {folder}; echo {shlex.quote(told)} > {folder}/events.jsonl; sleep 60"
        noticed = bash(f"until [ -e {folder}/events.jsonl ]; do sleep 0.05; done; echo peer is gone; exit 1")
        sentence = await failure(gang, nodes, {"node1": bash(told_then_slow), "node2": noticed})
        assert sentence.startswith("node1: rank 0: diverged")

    on_both(cluster, work)


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (11, "SIGSEGV"), (40, "signal 40")])
def test_a_rank_that_is_killed_is_named_with_its_signal(
    cluster: PrivateCluster, gang: Gang, number: int, name: str
) -> None:
    async def work(nodes: list[Node]) -> None:
        killed = bash(f"echo alive; sleep 0.2; kill -{number} $$")
        sentence = await failure(gang, nodes[:1], killed)
        assert sentence.startswith(f"node1: failed: killed by {name}; the end of its log:\n    alive")
        assert (gang.exit_status(nodes[0]).signal, gang.exit_status(nodes[0]).exit_code) == (number, None)

    on_both(cluster, work)


def test_the_first_cause_is_the_rank_that_was_killed_not_those_that_noticed(
    cluster: PrivateCluster, gang: Gang, tmp_path: Path
) -> None:
    """One node's rank tells, a little earlier by its clock, that a peer closed the connection."""

    async def work(nodes: list[Node]) -> None:
        folder = shlex.quote(str(Path(gang.folder(nodes[0])) / "rank0"))
        told = json.dumps(
            {"v": 1, "kind": "run_end", "rank": 0, "t_wall_s": time.time() - 1, "t_mono_s": 1.0, "status": "failed",
             "error": "RuntimeError: Connection closed by peer [10.0.0.2]:4711"}
        )  # fmt: skip
        noticed = bash(f"sleep 0.7; mkdir {folder}; echo {shlex.quote(told)} > {folder}/events.jsonl; exit 1")
        killed = bash("env RANK=1 LOCAL_RANK=0 sleep 60 & sleep 0.6; kill -KILL $!; sleep 0.5; exit 1")
        sentence = await failure(gang, nodes, {"node1": noticed, "node2": killed})
        assert sentence.startswith("node2: rank 1: ")

    on_both(cluster, work)


def test_a_gang_without_progress_is_ended_and_the_rank_that_stood_first_is_named(
    cluster: PrivateCluster, gang: Gang
) -> None:
    script = """
import faulthandler, os, pathlib, signal, sys, time
rank, folder = int(sys.argv[1]), pathlib.Path(os.environ["SCALEOUT_RUN_FOLDER"])
faulthandler.register(signal.SIGUSR1, file=(folder / "stacks.txt").open("a"))
(folder / f"rank{rank}").mkdir()
log = folder / f"rank{rank}" / "events.jsonl"
log.write_text('{"v": 1, "kind": "clock_start", "rank": %d, "t_wall_s": 1.0, "t_mono_s": 1.0, "read_bytes": null}' % rank + chr(10))
print("up", flush=True)
for _ in range(10 if rank else 25):
    os.utime(log)
    time.sleep(0.1)
time.sleep(60)
"""

    async def work(nodes: list[Node]) -> None:
        python = str(settings.node_python())
        commands = {node.name: [python, "-c", script, str(rank)] for rank, node in enumerate(nodes)}
        started = time.monotonic()
        with pytest.raises(GangError, match=r"^node2: rank 1: no progress, and the gang was stopped; .*'clock_start'"):
            await run_gang(gang.places(nodes, commands, lease_s=3), gang.note, no_progress_s=1.5)
        assert 3.5 < time.monotonic() - started < 15
        for node in nodes:
            assert gang.exit_status(node).state == "stalled"
            assert "line " in (Path(gang.folder(node)) / "stacks.txt").read_text()
        assert await gang.left(nodes[0]) == []

    on_both(cluster, work)


@pytest.mark.parametrize(
    ("command", "cwd"),
    [(["/no/such/python", "main.py"], "/"), (["sleep", "1"], "/no/such/folder"), (["/etc/passwd"], "/")],
)
def test_a_command_that_cannot_be_started_says_why(
    cluster: PrivateCluster, gang: Gang, command: list[str], cwd: str
) -> None:
    async def work(nodes: list[Node]) -> None:
        sentence = await failure(gang, nodes[:1], command, cwd=cwd)
        culprit = command[0] if cwd == "/" else cwd
        assert sentence.startswith("node1: failed: the command could not be started: ") and culprit in sentence
        assert gang.exit_status(nodes[0]).exit_code == 127

    on_both(cluster, work)


def test_a_trial_over_its_limit_is_ended(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        sentence = await failure(gang, nodes[:1], SLEEP, timeout_s=0.5)
        assert "timed_out: still running after its limit of 0.5 s" in sentence

    on_both(cluster, work)


def test_a_supervisor_that_ends_before_it_was_sent_its_job_is_quoted(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        nodes[1].python = "/no/such/python"
        async with slow_loop():
            for _ in range(4):
                assert re.match("node2: .*/no/such/python", await failure(gang, nodes, SLEEP))
                shutil.rmtree(gang.folder(nodes[0]))

    on_both(cluster, work)
