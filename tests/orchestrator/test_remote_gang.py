"""A gang that runs to its end, or whose parts fail: what is said, what is kept, and what remains."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from gangs import Gang, bash, until
from private_cluster import PATIENCE_S, PrivateCluster, is_running

from scaleout import settings
from scaleout.errors import GangError, SupersededError
from scaleout.remote.collect import fetch_folder
from scaleout.remote.gang import end_gang, pick_up, run_gang, states_of
from scaleout.remote.node import Node
from training.wire.job import ExitStatus

SLEEP = bash("sleep 60")


def on_both(cluster: PrivateCluster, work: Callable[[list[Node]], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with cluster.connected("node1", "node2") as nodes:
            await work(nodes)

    asyncio.run(connected())


async def failure(gang: Gang, nodes: list[Node], commands: object, **job: object) -> str:
    """The sentence that the gang ends in; nothing of it may be left by then."""
    with pytest.raises(GangError) as caught:
        await gang.run(gang.places(nodes, commands, **job))
    assert await gang.left(nodes[0]) == []
    return str(caught.value)


def test_all_succeed(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        script = 'echo "$SCALEOUT_RUN_ID on $SCALEOUT_NODE"; echo oops >&2; sleep 0.2'
        statuses = await gang.run(gang.places(nodes, bash(script)))
        assert [(s.node, s.state, s.exit_code, s.signal, s.left_processes) for s in statuses] == [
            ("node1", "succeeded", 0, None, 0),
            ("node2", "succeeded", 0, None, 0),
        ]
        assert sorted(gang.lines) == sorted(
            (node, line) for node in ("node1", "node2") for line in (f"{gang.run_id} on {node}", "oops")
        )
        assert statuses == [gang.exit_status(node) for node in nodes]
        assert statuses[0].log_tail == [f"{gang.run_id} on node1", "oops"]
        assert all(0.1 < s.ended_wall_s - s.started_wall_s < 5 for s in statuses)
        assert await gang.left(nodes[0]) == []

    on_both(cluster, work)


def test_lines_arrive_while_it_runs(cluster: PrivateCluster, gang: Gang, tmp_path: Path) -> None:
    go = tmp_path / "go"

    async def work(nodes: list[Node]) -> None:
        script = f"echo ready; until [ -e {shlex.quote(str(go))} ]; do sleep 0.05; done"
        running = asyncio.create_task(gang.run(gang.places(nodes, bash(script))))
        await gang.heard("ready", "node1", "node2")
        assert len(await gang.left(nodes[0])) >= 2
        go.touch()
        assert [status.state for status in await running] == ["succeeded", "succeeded"]

    on_both(cluster, work)


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


def test_a_node_that_is_done_early_is_no_reason_to_end_the_others(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        commands = {"node1": bash("true"), "node2": bash("sleep 1.3; echo late")}
        statuses = await gang.run(gang.places(nodes, commands, lease_s=0.8))
        assert [status.state for status in statuses] == ["succeeded", "succeeded"]
        assert ("node2", "late") in gang.lines

    on_both(cluster, work)


def test_the_same_folder_never_starts_twice(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        running = asyncio.create_task(gang.run(gang.places(nodes, bash("echo once; sleep 0.8"))))
        await gang.heard("once", "node1", "node2")
        second = Gang(gang.run_id, gang.release)
        with pytest.raises(GangError, match=r"  node[12]: .*/runs/.* exists: a trial never starts twice in one folder"):
            await second.run(second.places(nodes, bash("echo twice")))
        assert [status.state for status in await running] == ["succeeded", "succeeded"]
        with pytest.raises(GangError, match="never starts twice"):
            await second.run(second.places(nodes, bash("echo twice")))
        assert second.lines == []
        assert {line for _, line in gang.lines} == {"once"}

    on_both(cluster, work)


def test_a_folder_that_only_one_node_has_starts_nothing_that_lasts(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        Path(gang.folder(nodes[1])).mkdir(parents=True)
        assert (await failure(gang, nodes, SLEEP)).startswith("node2: ")

    on_both(cluster, work)


def test_values_of_a_job_reach_the_program_unchanged(cluster: PrivateCluster, gang: Gang, tmp_path: Path) -> None:
    values = [
        "",
        " ",
        "a b",
        "it's",
        '"',
        "; exit 3",
        "$(exit 3)",
        "$HOME",
        "-x",
        "--",
        "l1\nl2",
        "é日\U0001f680",
        "\\",
        "*",
    ]
    folder = tmp_path / "it's $(pwd); a folder"
    folder.mkdir()
    script = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['VALUE'], os.getcwd()]))"

    async def work(nodes: list[Node]) -> None:
        command = ["python3", "-c", script, *values]
        await gang.run(gang.places(nodes[:1], command, cwd=str(folder), environment={"VALUE": "".join(values)}))
        assert [json.loads(line) for _, line in gang.lines] == [[values, "".join(values), str(folder)]]

    on_both(cluster, work)


LARGE = """
import os
for i in range(20_000):
    os.write(1, b"%d \\xff\\xfe \\xc3\\xa9 " % i + os.urandom(40).hex().encode() + b"\\r\\n")
os.write(1, b"no line break at the end")
"""


def test_a_large_log_arrives_whole(cluster: PrivateCluster, gang: Gang, tmp_path: Path) -> None:
    async def work(nodes: list[Node]) -> None:
        await gang.run(gang.places(nodes[:1], ["python3", "-c", LARGE]))
        for node in nodes[:1]:
            said = [line for name, line in gang.lines if name == node.name]
            assert [line.split(" ")[0] for line in said] == [*map(str, range(20_000)), "no"]
            assert await fetch_folder(node, gang.folder(node), tmp_path / node.name)
            original = (Path(gang.folder(node)) / "log").read_bytes()
            assert len(original) > 2**20
            assert (tmp_path / node.name / "log").read_bytes() == original
            names = {path.name for path in (tmp_path / node.name).iterdir()}
            assert {"job.json", "exit.json", "log", "telemetry.jsonl"} <= names

    on_both(cluster, work)


def test_a_line_of_megabytes_spoils_neither_the_log_nor_the_outcome(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        script = "print('x' * 5_000_000); print('after')"
        statuses = await gang.run(gang.places(nodes[:1], ["python3", "-c", script]))
        assert statuses[0].state == "succeeded"
        said = [line for _, line in gang.lines]
        assert said[-1] == "after"
        assert "".join(said[:-1]) == "x" * 5_000_000

    on_both(cluster, work)


def test_a_talkative_rank_does_not_cost_the_gang_its_lease(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        script = "import os\nfor i in range(50): os.write(1, b'0123456789abcdef\\n' * 1000)\nimport time; time.sleep(3)"
        statuses = await gang.run(gang.places(nodes[:1], ["python3", "-c", script], lease_s=1.5))
        assert statuses[0].state == "succeeded"
        assert len(gang.lines) == 50_000

    on_both(cluster, work)


def test_under_a_login_shell_that_greets(
    cluster: PrivateCluster, gang: Gang, login_shell: Callable[[str, str], None], tmp_path: Path
) -> None:
    login_shell("node1", "echo Welcome; echo '{}'; echo 12; printf 'no line break'; echo Goodbye >&2")

    async def work(nodes: list[Node]) -> None:
        [status] = await gang.run(gang.places(nodes[:1], ["sh", "-c", "echo first; sleep 0.2"]))
        assert status.state == "succeeded"
        assert ("node1", "first") in gang.lines
        assert await fetch_folder(nodes[0], gang.folder(nodes[0]), tmp_path / "fetched")
        assert (tmp_path / "fetched" / "log").read_text() == "first\n"

    on_both(cluster, work)


def test_the_processes_program_finds_exactly_the_runs_processes(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        other = await nodes[0].ask("processes", f"{gang.run_id}-other", timeout_s=PATIENCE_S)
        assert other["processes"] == []
        script = "sleep 61 & env SCALEOUT_RUN_ID=another sleep 62 & echo $$ $!; echo ready; wait"
        running = asyncio.create_task(gang.run(gang.places(nodes[:1], bash(script))))
        await gang.heard("ready", "node1")
        launcher, another = (int(word) for word in gang.lines[0][1].split())
        found = {process["pid"]: process["command"] for process in await gang.left(nodes[0])}
        assert launcher in found and another not in found
        assert sorted(command for pid, command in found.items() if pid != launcher) == ["sleep 61"]
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await gang.left(nodes[0]) == []
        assert not is_running(another)

    on_both(cluster, work)


def test_a_connection_that_is_killed_is_opened_again_and_no_line_is_lost_or_doubled(
    cluster: PrivateCluster, gang: Gang
) -> None:
    async def work(nodes: list[Node]) -> None:
        script = "for i in $(seq 1 60); do echo $i; sleep 0.03; done"
        running = asyncio.create_task(gang.run(gang.places(nodes, bash(script))))
        for line in ("5", "20"):
            await gang.heard(line, "node1", "node2")
            cluster.cut_sessions("node1")
        assert [status.state for status in await running] == ["succeeded", "succeeded"]
        for name in ("node1", "node2"):
            told = [line for node, line in gang.lines if node == name and line.isdigit()]
            assert told == [str(i) for i in range(1, 61)]
        assert [line for _, line in gang.lines].count("(reached again)") == 2

    on_both(cluster, work)


def test_a_node_that_cannot_be_reached_again_ends_the_gang_and_its_own_part_by_itself(
    cluster: PrivateCluster, gang: Gang
) -> None:
    async def work(nodes: list[Node]) -> None:
        running = asyncio.create_task(gang.run(gang.places(nodes, bash("echo up; sleep 60"), lease_s=1.5)))
        await gang.heard("up", "node1", "node2")
        cluster.stop_daemon("node1")
        cut = time.monotonic()
        with pytest.raises(
            GangError, match=r"^node1: the connection was lost.*, and within 1.5 s it could not be reached again"
        ):
            await running
        assert 1 < time.monotonic() - cut < 6
        assert gang.exit_status(nodes[1]).state == "stopped"
        await until((Path(gang.folder(nodes[0])) / "exit.json").exists)
        assert gang.exit_status(nodes[0]).state == "lease_expired"
        assert await gang.left(nodes[1]) == []

    try:
        on_both(cluster, work)
    finally:
        cluster.host("node1").start()


@pytest.mark.parametrize("victims", [["holder"], ["guardian"], ["guardian", "holder"]])
def test_supervisors_that_are_killed_end_the_gang_and_leave_no_rank(
    cluster: PrivateCluster, gang: Gang, victims: list[str]
) -> None:
    async def work(nodes: list[Node]) -> None:
        running = asyncio.create_task(gang.run(gang.places(nodes, bash("echo up; sleep 60"), grace_s=0.5)))
        await gang.heard("up", "node1", "node2")
        for victim in victims:
            os.kill(supervisor_pid(gang, nodes[0], victim), signal.SIGKILL)
        with pytest.raises(GangError, match=r"^node1: (lost: its (supervisor|guardian)|its supervisor was killed)"):
            await running
        assert gang.exit_status(nodes[1]).state == "stopped"
        assert await gang.left(nodes[0]) == []

    on_both(cluster, work)


@pytest.mark.parametrize("victim", ["guardian", "holder"])
def test_a_supervisor_that_is_asked_to_end_ends_its_part(cluster: PrivateCluster, gang: Gang, victim: str) -> None:
    """As when the node shuts down."""

    async def work(nodes: list[Node]) -> None:
        running = asyncio.create_task(gang.run(gang.places(nodes[:1], bash("echo up; sleep 60"))))
        await gang.heard("up", "node1")
        os.kill(supervisor_pid(gang, nodes[0], victim), signal.SIGTERM)
        with pytest.raises(GangError, match=r"^node1: stopped: stopped on request"):
            await running
        assert await gang.left(nodes[0]) == []

    on_both(cluster, work)


def test_all_are_ready_before_any_starts(cluster: PrivateCluster, gang: Gang, tmp_path: Path) -> None:
    async def work(nodes: list[Node]) -> None:
        Path(gang.folder(nodes[1])).mkdir(parents=True)
        started = tmp_path / "started"
        places = gang.places(nodes, bash(f"touch {shlex.quote(str(started))}"))
        with pytest.raises(GangError, match=r"^node2: .* exists: a trial never starts twice in one folder"):
            await gang.run(places)
        await asyncio.sleep(0.5)
        assert not started.exists()
        assert await states_of(places) == {"node1": "dead", "node2": "absent"}

    on_both(cluster, work)


def test_all_start_within_a_second_of_each_other(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        await gang.run(gang.places(nodes, bash("date +%s.%N")))
        first, second = (float(line) for _, line in gang.lines)
        assert abs(first - second) < 1

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


def waits_for(path: Path) -> list[str]:
    return bash(f"echo one; until [ -e {shlex.quote(str(path))} ]; do sleep 0.05; done; echo two")


def test_a_gang_is_picked_up_with_its_log_and_the_earlier_attempt_lets_go(
    cluster: PrivateCluster, gang: Gang, tmp_path: Path
) -> None:
    async def work(nodes: list[Node]) -> None:
        places = gang.places(nodes, waits_for(tmp_path / "go"))
        earlier = asyncio.create_task(gang.run(places))
        await gang.heard("one", "node1", "node2")
        assert await states_of(places) == {"node1": "running", "node2": "running"}
        later = Gang(gang.run_id, gang.release)
        async with cluster.connected("node1", "node2") as others:
            picking = asyncio.create_task(pick_up(later.places(others, bash("never used")), later.note))
            with pytest.raises(SupersededError, match="a newer attempt has taken this gang over"):
                await earlier
            (tmp_path / "go").touch()
            statuses = await picking
        assert [status.state for status in statuses] == ["succeeded", "succeeded"]
        assert sorted(later.lines) == sorted((n, line) for n in ("node1", "node2") for line in ("one", "two"))
        assert ("node1", "two") not in gang.lines
        assert await states_of(places) == {"node1": "over", "node2": "over"}
        again = Gang(gang.run_id, gang.release)
        assert await pick_up(again.places(nodes, bash("never used")), again.note) == statuses
        assert sorted(again.lines) == sorted(later.lines)

    on_both(cluster, work)


def test_an_attempt_that_was_superseded_cannot_stop_the_gang(
    cluster: PrivateCluster, gang: Gang, tmp_path: Path
) -> None:
    async def work(nodes: list[Node]) -> None:
        places = gang.places(nodes, waits_for(tmp_path / "go"))
        earlier = asyncio.create_task(gang.run(places))
        await gang.heard("one", "node1", "node2")
        later = Gang(gang.run_id, gang.release)
        async with cluster.connected("node1", "node2") as others:
            picking = asyncio.create_task(pick_up(later.places(others, bash("never used")), later.note))
            await later.heard("one", "node1", "node2")
            earlier.cancel()
            with pytest.raises((asyncio.CancelledError, SupersededError)):
                await earlier
            (tmp_path / "go").touch()
            assert [status.state for status in await picking] == ["succeeded", "succeeded"]

    on_both(cluster, work)


def test_a_gang_that_nobody_wants_any_more_is_ended(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        places = gang.places(nodes, {"node1": bash("echo up; sleep 60"), "node2": bash("sleep 60")})
        earlier = asyncio.create_task(gang.run(places))
        await gang.heard("up", "node1")
        await end_gang(places)
        with pytest.raises(GangError):
            await earlier
        assert await states_of(places) == {"node1": "over", "node2": "over"}
        assert await gang.left(nodes[0]) == []
        await end_gang(places)

    on_both(cluster, work)


def supervisor_pid(gang: Gang, node: Node, name: str) -> int:
    return json.loads((Path(gang.folder(node)) / "supervisor.json").read_text())[name]["pid"]


def test_telemetry_is_sampled_while_it_runs(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        statuses: list[ExitStatus] = await gang.run(
            gang.places(nodes[:1], bash("sleep 1 & sleep 1"), telemetry_interval_s=0.2)
        )
        samples = gang.telemetry(nodes[0])
        assert len(samples) >= 3
        assert max(sample["gang_processes"] for sample in samples) == 3
        assert all(statuses[0].started_wall_s < s["t_wall_s"] < statuses[0].ended_wall_s for s in samples)
        assert all(0 <= s["cpu_util"] <= 1 and 0.1 < s["interval_s"] < 2 for s in samples)

    on_both(cluster, work)
