"""The cluster lock: one sweep at a time, and a sentence that says whose turn it is."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from gangs import on_both, until
from private_cluster import PATIENCE_S, PrivateCluster
from trials import environment

from scaleout.errors import LockHeldError, NodeError
from scaleout.remote import lock
from scaleout.remote.lock import Claim
from scaleout.remote.node import Node, connect

FIRST = Claim("nightly 2024-05-01T02:00:00+00:00", 60, "Zoë", "airflow-1", 4711)
SECOND = Claim("manual", 60, "root", "airflow-2", 42)


async def holders(nodes: list[Node], root: str) -> dict[str, dict[str, Any]]:
    return {node.name: await lock.holder(node, root) for node in nodes}


async def holding(nodes: list[Node], root: str) -> list[str | None]:
    """The run that holds each node."""
    found = await holders(nodes, root)
    return [found[node.name]["by"] and found[node.name]["by"]["run_id"] for node in nodes]


def test_the_second_run_is_told_who_holds_the_cluster_and_gets_no_node(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, FIRST)
        with pytest.raises(LockHeldError) as caught:
            await lock.acquire(nodes, root, SECOND)
        sentence = str(caught.value)
        assert f"node1 is held by the sweep {FIRST.run_id} (started by Zoë on airflow-1, pid 4711; holds" in sentence
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
        assert {answer["by"]["pid"] for answer in (await holders(nodes, root)).values()} == {4712}

    on_both(cluster, work)


def test_releasing_what_another_run_holds_does_nothing(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, FIRST)
        await lock.release(nodes, root, SECOND)
        assert await holding(nodes, root) == [FIRST.run_id, FIRST.run_id]

    on_both(cluster, work)


def test_a_lock_that_nobody_renews_is_free_after_its_time(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, Claim("dead", 3.0, "root", "airflow-1", 1))
        with pytest.raises(LockHeldError, match="held by the sweep dead"):
            await lock.acquire(nodes[:1], root, SECOND)
        await asyncio.sleep(3.0)
        await lock.acquire(nodes, root, SECOND)
        assert await holding(nodes, root) == ["manual", "manual"]

    on_both(cluster, work)


def test_renewing_keeps_it_past_its_time(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        claim = Claim("long", 3.0, "root", "airflow-1", 1)
        await lock.acquire(nodes, root, claim)
        async with lock.renewed(nodes, root, claim):
            await asyncio.sleep(4.0)
            with pytest.raises(LockHeldError, match="held by the sweep long"):
                await lock.acquire(nodes, root, SECOND)
            ages = [answer["age_s"] for answer in (await holders(nodes, root)).values()]
            assert max(ages) < 3.0

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
        await asyncio.gather(*(lock.force_release(node, root) for node in nodes))
        assert await holding(nodes, root) == [None, None]
        await lock.acquire(nodes, root, SECOND)

    on_both(cluster, work)


def test_nodes_that_share_a_home_have_locks_of_their_own(cluster: PrivateCluster, root: str) -> None:
    """Each machine's ages count from its own boot: one could not judge the other's."""

    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, Claim.of("mine", 60))
        other = lock_file(nodes[0], root).with_name("lock.another-machine.json")
        other.write_text("not mine")
        await lock.release(nodes, root, Claim.of("mine", 60))
        assert other.read_text() == "not mine" and not lock_file(nodes[0], root).exists()

    on_both(cluster, work)


def lock_file(node: Node, root: str) -> Path:
    return Path(node.path(root)) / f"lock.{os.uname().nodename}.json"


def change(node: Node, root: str, **changes: Any) -> None:
    """Changes what stands in a node's lock file."""
    path = lock_file(node, root)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGED = [
    "",
    '{"run_id": "nigh',
    "[]",
    "{}",
    "null",
    '"damaged"',
    "\0" * 200,
    "[" * 100_000,
    '{"run_id": "x", "owner": "o", "host": "h", "pid": 1, "ttl_s": NaN, "taken_wall_s": 1, "boot_id": "b", "renewed_boot_s": 1}',
    '{"run_id": "x", "owner": "o", "host": "h", "pid": 1, "ttl_s": 9, "taken_wall_s": 1, "boot_id": 2, "renewed_boot_s": 1}',
]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_lock_file_is_told_and_not_taken_for_free(cluster: PrivateCluster, root: str, content: str) -> None:
    async def work(nodes: list[Node]) -> None:
        path = lock_file(nodes[1], root)
        path.parent.mkdir(parents=True)
        path.write_text(content)
        with pytest.raises(
            LockHeldError, match=r"^node2: .*/lock\..*\.json is damaged, .*`scaleout lock break` frees it$"
        ):
            await lock.acquire(nodes, root, FIRST)
        found = await holders(nodes, root)
        assert [found[node.name]["damaged"] for node in nodes] == [False, True]
        assert await holding(nodes, root) == [None, None]
        await lock.release(nodes, root, FIRST)
        assert path.read_text() == content
        await asyncio.gather(*(lock.force_release(node, root) for node in nodes))
        await lock.acquire(nodes, root, FIRST)
        assert await holding(nodes, root) == [FIRST.run_id, FIRST.run_id]

    on_both(cluster, work)


def test_a_sweep_whose_lock_file_was_damaged_is_told_before_it_works_on(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, FIRST)
        lock_file(nodes[0], root).write_text("")
        with pytest.raises(
            LockHeldError, match=r"^node1: .* \(the lock file is damaged, `scaleout lock break` frees it\)"
        ):
            async with lock.renewed(nodes, root, FIRST):
                pytest.fail("it worked under a lock that nobody can read")

    on_both(cluster, work)


@pytest.mark.parametrize("step_s", [-86400.0, 86400.0])
def test_a_clock_that_was_set_frees_no_lock_and_keeps_none(cluster: PrivateCluster, root: str, step_s: float) -> None:
    """What the wall clock said when the lock was taken plays no part."""

    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, Claim("dead", 3.0, "root", "airflow-1", 1))
        for node in nodes:
            change(node, root, taken_wall_s=time.time() + step_s)
        with pytest.raises(LockHeldError, match="held by the sweep dead"):
            await lock.acquire(nodes, root, SECOND)
        await asyncio.sleep(3.0)
        await lock.acquire(nodes, root, SECOND)

    on_both(cluster, work)


def test_after_a_reboot_a_lock_is_held_for_its_time_and_then_free(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        up_s = time.clock_gettime(time.CLOCK_BOOTTIME)
        await lock.acquire(nodes, root, FIRST)
        for node, ttl_s in zip(nodes, (up_s + 60, up_s / 2), strict=True):
            # The clock of the boot before had gone further than this boot's.
            change(node, root, boot_id="of the boot before", renewed_boot_s=up_s + 10**6, ttl_s=ttl_s)
        with pytest.raises(LockHeldError, match=r"^node1 is held by the sweep nightly"):
            await lock.acquire(nodes, root, SECOND)
        await lock.acquire(nodes[1:], root, SECOND)
        assert await holding(nodes, root) == [FIRST.run_id, SECOND.run_id]
        async with lock.renewed(nodes[:1], root, FIRST):
            found = await holders(nodes[:1], root)
            assert found["node1"]["age_s"] < up_s

    on_both(cluster, work)


def test_a_sweep_whose_lock_is_taken_away_stops_what_it_does(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        claim = Claim("long", 5.0, "root", "airflow-1", 1)
        await lock.acquire(nodes, root, claim)

        async def sweep() -> None:
            async with lock.renewed(nodes, root, claim):
                await asyncio.gather(*(lock.force_release(node, root) for node in nodes))
                await lock.acquire(nodes, root, SECOND)
                await asyncio.sleep(PATIENCE_S)
                pytest.fail("it worked on under another's lock")

        with pytest.raises(
            LockHeldError, match=r"^node1: this sweep no longer holds the cluster \((run manual|nobody) does"
        ):
            await sweep()
        assert asyncio.current_task().cancelling() == 0

    on_both(cluster, work)


def test_a_sweep_that_is_stopped_while_it_holds_the_lock_is_stopped(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, FIRST)
        inside = asyncio.Event()

        async def sweep() -> None:
            async with lock.renewed(nodes, root, FIRST):
                inside.set()
                await asyncio.sleep(PATIENCE_S)

        sweeping = asyncio.create_task(sweep())
        await inside.wait()
        sweeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sweeping

    on_both(cluster, work)


def test_the_holder_is_shown_with_the_time_that_it_took_the_lock(cluster: PrivateCluster, root: str) -> None:
    async def work(nodes: list[Node]) -> None:
        before = time.time()
        await lock.acquire(nodes, root, FIRST)
        taken = [answer["by"]["taken_wall_s"] for answer in (await holders(nodes, root)).values()]
        assert all(before <= wall_s <= time.time() for wall_s in taken)
        await lock.acquire(nodes, root, FIRST)
        async with lock.renewed(nodes, root, FIRST):
            again = [answer["by"]["taken_wall_s"] for answer in (await holders(nodes, root)).values()]
        assert again == taken
        said = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(taken[0]))
        with pytest.raises(LockHeldError, match=rf"holds it since {said}, last sign of life [0-9]+ s ago"):
            await lock.acquire(nodes, root, SECOND)

    on_both(cluster, work)


def lock_command(cluster: PrivateCluster, root: str, config_dir: Path, action: str) -> tuple[int, list[str]]:
    """`scaleout lock …` on the private cluster: its exit status and its lines, complaints last."""
    document = cluster.local.cluster.model_copy(update={"remote_root": root}).model_dump(mode="json")
    path = config_dir / "clusters" / "private.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    variables = environment(
        SCALEOUT_CONFIG_DIR=str(config_dir),
        SCALEOUT_CLUSTER="private",
        SCALEOUT_CONNECTIONS_FILE=str(cluster.connections),
        PYTHONUTF8="1",
    )
    command = [sys.executable, "-m", "scaleout.cli", "lock", action]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.splitlines() + done.stderr.splitlines()


def test_show_and_break_on_the_command_line(cluster: PrivateCluster, root: str, tmp_path: Path) -> None:
    async def take(nodes: list[Node]) -> None:
        await lock.acquire(nodes, root, FIRST)
        lock_file(nodes[1], root).write_text("{")

    on_both(cluster, take)
    status, (first, second, third) = lock_command(cluster, root, tmp_path, "show")
    assert status == 1
    assert first.startswith(f"node1: {FIRST.run_id} (Zoë on airflow-1, pid 4711) since 2") and first.endswith(" s ago")
    assert second == "node2: damaged; when no sweep runs, `scaleout lock break` frees it"
    assert third == "node3: free"
    free = (0, ["node1: free", "node2: free", "node3: free"])
    assert lock_command(cluster, root, tmp_path, "break") == free
    assert lock_command(cluster, root, tmp_path, "show") == free


def test_a_node_that_is_down_does_not_hide_what_the_others_say(
    cluster: PrivateCluster, root: str, tmp_path: Path
) -> None:
    async def take(nodes: list[Node]) -> None:
        await lock.acquire(nodes[:1], root, FIRST)

    on_both(cluster, take)
    cluster.host("node2").stop()
    try:
        status, lines = lock_command(cluster, root, tmp_path, "show")
        assert (status, lines[0].split(" (")[0], lines[1]) == (1, f"node1: {FIRST.run_id}", "node3: free")
        assert lines[2].startswith("scaleout: node2: cannot connect to 127.0.0.1:") and len(lines) == 3
        assert lock_command(cluster, root, tmp_path, "break")[1][:2] == ["node1: free", "node3: free"]
    finally:
        cluster.host("node2").start()


def test_a_user_without_a_name_can_claim(tmp_path: Path) -> None:
    """As in a container that runs under a number of the user's choice."""
    program = "import os; from scaleout.remote.lock import Claim; os.setuid(54321); print(Claim.of('r', 1).owner)"
    nameless = {k: v for k, v in environment().items() if k not in ("LOGNAME", "USER", "LNAME", "USERNAME")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**nameless, "HOME": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "user 54321\n"), done.stderr


def test_a_root_that_cannot_hold_a_lock_is_named(cluster: PrivateCluster) -> None:
    async def work(nodes: list[Node]) -> None:
        with pytest.raises(NodeError, match=r"^node1: /dev/null: the lock cannot be read or written: .+"):
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
        ages = [answer["age_s"] for answer in (await holders(nodes, root)).values()]
        assert all(0 <= age <= time.monotonic() - started for age in ages)

    on_both(cluster, work)
