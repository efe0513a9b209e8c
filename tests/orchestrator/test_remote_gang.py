"""A gang that runs to its end: how it is started, what is said, what is kept, and what remains."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from gangs import Gang, bash, failure, on_both
from private_cluster import PATIENCE_S, PrivateCluster, is_running

from scaleout.errors import GangError
from scaleout.remote.collect import fetch_folder
from scaleout.remote.gang import states_of
from scaleout.remote.node import Node
from training.wire.job import ExitStatus

SLEEP = bash("sleep 60")


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
