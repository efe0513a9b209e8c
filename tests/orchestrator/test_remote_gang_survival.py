"""What a gang survives and what ends it: connections, supervisors and orchestrators that die; and who may pick it up."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import time
from pathlib import Path

import pytest
from gangs import Gang, bash, on_both, until
from private_cluster import PrivateCluster

from scaleout.errors import GangError, SupersededError
from scaleout.remote.gang import Place, end_gang, pick_up, states_of
from scaleout.remote.node import Node
from training.wire.job import ExitStatus


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


def supervisor_pid(gang: Gang, node: Node, name: str) -> int:
    return json.loads((Path(gang.folder(node)) / "supervisor.json").read_text())[name]["pid"]


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


async def begun(gang: Gang, nodes: list[Node], go: Path) -> tuple[list[Place], asyncio.Task[list[ExitStatus]]]:
    """A gang that says "one", and "two" when `go` is there; and the attempt that holds it."""
    script = f"echo one; until [ -e {shlex.quote(str(go))} ]; do sleep 0.05; done; echo two"
    places = gang.places(nodes, bash(script))
    attempt = asyncio.create_task(gang.run(places))
    await gang.heard("one", "node1", "node2")
    return places, attempt


def test_a_gang_is_picked_up_with_its_log_and_the_earlier_attempt_lets_go(
    cluster: PrivateCluster, gang: Gang, tmp_path: Path
) -> None:
    async def work(nodes: list[Node]) -> None:
        places, earlier = await begun(gang, nodes, tmp_path / "go")
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
        _, earlier = await begun(gang, nodes, tmp_path / "go")
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
