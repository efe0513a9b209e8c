"""The cluster lock: one sweep at a time, and a sentence that says whose turn it is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from gangs import until
from private_cluster import PATIENCE_S, PrivateCluster

from scaleout.errors import FleetError, LockHeldError, NodeError
from scaleout.remote import lock
from scaleout.remote.lock import Claim
from scaleout.remote.node import Node, connect

FIRST = Claim("nightly 2024-05-01T02:00:00+00:00", 60, "Zoë", "airflow-1", 4711)
SECOND = Claim("manual", 60, "root", "airflow-2", 42)


def on_both(cluster: PrivateCluster, work: Callable[[list[Node]], Awaitable[None]]) -> None:
    async def connected() -> None:
        async with cluster.connected("node1", "node2") as nodes:
            await work(nodes)

    asyncio.run(connected())


async def holding(nodes: list[Node], root: str) -> list[str | None]:
    """The run that holds each node."""
    found = await lock.holders(nodes, root)
    return [found[node.name]["by"] and found[node.name]["by"]["run_id"] for node in nodes]


def test_the_second_run_is_told_who_holds_the_cluster_and_gets_no_node(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, FIRST)
        with pytest.raises(LockHeldError) as caught:
            await lock.acquire(nodes, root, SECOND)
        sentence = str(caught.value)
        assert (
            f"node1 is held by the sweep {FIRST.run_id} (started by Zoë on airflow-1, pid 4711, last sign" in sentence
        )
        assert "`scaleout lock break`" in sentence
        assert await holding(nodes, root) == [FIRST.run_id, FIRST.run_id]
        await lock.release(nodes, root, FIRST)
        await lock.acquire(nodes, root, SECOND)
        assert await holding(nodes, root) == ["manual", "manual"]

    on_both(cluster, work)


def test_where_only_the_last_node_is_held_none_is_left_half_taken(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes[1:], root, FIRST)
        with pytest.raises(LockHeldError, match=r"^node2 is held by"):
            await lock.acquire(nodes, root, SECOND)
        assert await holding(nodes, root) == [None, FIRST.run_id]

    on_both(cluster, work)


def test_the_same_run_may_take_it_again(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, FIRST)
        again = Claim(FIRST.run_id, 60, "Zoë", "airflow-1", 4712)
        await lock.acquire(nodes, root, again)
        assert {answer["by"]["pid"] for answer in (await lock.holders(nodes, root)).values()} == {4712}

    on_both(cluster, work)


def test_releasing_what_another_run_holds_does_nothing(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, FIRST)
        await lock.release(nodes, root, SECOND)
        assert await holding(nodes, root) == [FIRST.run_id, FIRST.run_id]

    on_both(cluster, work)


def test_a_lock_that_nobody_renews_is_free_after_its_time(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, Claim("dead", 0.8, "root", "airflow-1", 1))
        with pytest.raises(LockHeldError, match="held by the sweep dead"):
            await lock.acquire(nodes[:1], root, SECOND)
        await asyncio.sleep(0.8)
        await lock.acquire(nodes, root, SECOND)
        assert await holding(nodes, root) == ["manual", "manual"]

    on_both(cluster, work)


def test_renewing_keeps_it_past_its_time(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        claim = Claim("long", 1.0, "root", "airflow-1", 1)
        await lock.acquire(nodes, root, claim)
        async with lock.renewed(nodes, root, claim):
            await asyncio.sleep(1.3)
            with pytest.raises(LockHeldError, match="held by the sweep long"):
                await lock.acquire(nodes, root, SECOND)
            ages = [answer["age_s"] for answer in (await lock.holders(nodes, root)).values()]
            assert max(ages) < 1.0

    on_both(cluster, work)


def test_a_run_that_lost_the_cluster_is_told_before_it_works_on(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        with pytest.raises(LockHeldError, match=r"no longer holds the cluster \(nobody does\)"):
            async with lock.renewed(nodes, root, FIRST):
                pytest.fail("it worked without the lock")
        await lock.acquire(nodes, root, SECOND)
        with pytest.raises(LockHeldError, match=r"no longer holds the cluster \(run manual does\)"):
            async with lock.renewed(nodes, root, FIRST):
                pytest.fail("it worked under another's lock")
        assert await holding(nodes, root) == ["manual", "manual"]

    on_both(cluster, work)


def test_breaking_frees_it(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, FIRST)
        await lock.force_release(nodes, root)
        assert await holding(nodes, root) == [None, None]
        await lock.acquire(nodes, root, SECOND)

    on_both(cluster, work)


@pytest.mark.parametrize("content", ["", '{"run_id": "nigh', "[]", "{}", '{"run_id": "x", "renewed_wall_s": "now"}'])
def test_a_damaged_lock_file_is_told_and_not_taken_for_free(cluster: PrivateCluster, root: str, content: str) -> None:
    async def work(nodes: list[Node]) -> None:
        path = Path(nodes[1].path(root)) / "lock.json"
        path.parent.mkdir(parents=True)
        path.write_text(content)
        with pytest.raises(NodeError, match=r"^node2: .*/lock\.json is damaged: remove it when no sweep runs"):
            await lock.acquire(nodes, root, FIRST)
        with pytest.raises(FleetError, match=r"node2: .*/lock\.json is damaged"):
            await lock.holders(nodes, root)
        assert await holding(nodes[:1], root) == [None]
        path.unlink()
        await lock.acquire(nodes, root, FIRST)

    on_both(cluster, work)


def test_a_root_that_cannot_hold_a_lock_is_named(cluster: PrivateCluster) -> None:
    async def work(nodes: list[Node]) -> None:
        with pytest.raises(NodeError, match=r"^node1: /dev/null: the lock cannot be written: .+"):
            await lock.acquire(nodes, "/dev/null", FIRST)

    on_both(cluster, work)


def test_of_many_at_once_one_gets_all_and_the_others_nothing(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        claims = [Claim(f"run{i}", 60, "root", "h", i) for i in range(4)]
        # Given in either order: it is taken in one.
        orders = [nodes, nodes[::-1], nodes, nodes[::-1]]
        tries = (lock.acquire(order, root, claim) for order, claim in zip(orders, claims, strict=True))
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        winners = [claim.run_id for claim, outcome in zip(claims, outcomes, strict=True) if outcome is None]
        assert len(winners) == 1
        assert [type(outcome) for outcome in outcomes if outcome is not None] == [LockHeldError] * 3
        assert await holding(nodes, root) == winners * 2

    on_both(cluster, work)


def test_stopped_while_taking_it_a_run_holds_no_node(cluster: PrivateCluster, root: str, tmp_path: Path) -> None:
    """Ctrl-C comes when the node has taken the lock and its answer is still under way."""
    taken, python = tmp_path / "taken", tmp_path / "slow to answer"
    python.write_text(f'#!/bin/sh\nsaid=$(python3 "$@")\n>\'{taken}\'\nsleep 0.5\necho "$said"\n')
    python.chmod(0o755)

    async def work() -> None:
        slow = await connect(cluster.target("node1"), f"{python}", PATIENCE_S)
        async with cluster.connected("node1") as nodes:
            taking = asyncio.create_task(lock.acquire([slow], root, FIRST))
            await until(taken.exists)
            assert await holding(nodes, root) == [FIRST.run_id]
            taking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await taking
            assert await holding(nodes, root) == [None]
        slow.connection.close()
        await slow.connection.wait_closed()

    asyncio.run(work())


def test_a_node_tells_how_long_ago_it_was_renewed(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        started = time.monotonic()
        await lock.acquire(nodes, root, FIRST)
        ages = [answer["age_s"] for answer in (await lock.holders(nodes, root)).values()]
        assert all(0 <= age <= time.monotonic() - started for age in ages)

    on_both(cluster, work)
