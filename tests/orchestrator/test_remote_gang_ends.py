"""However a gang ends, everything that it started ends with it: cancelled, left alone, or with programs that resist."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gangs import Gang, bash, on_both, until
from private_cluster import PrivateCluster, carrying, is_running

from scaleout import settings
from scaleout.errors import GangError
from scaleout.remote.node import Node

# Ignores TERM, leaves its session, its parent and its environment behind, and says its process id.
DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
stands, starts = os.pipe()
if os.fork():
    os.close(starts)
    os.read(stands, 1)
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
os.write(1, b"daemon %d\\n" % os.getpid())
os.execve("/bin/sleep", ["innocent", "60"], {})
"""
RESIST = f"""
python3 -c '{DAEMON}'
setsid sleep 61 & echo "apart $!"
(trap "" TERM; echo "deaf $BASHPID"; while :; do sleep 1; done) &
trap "" TERM
echo "launcher $$"
"""
WAIT = "while :; do sleep 1; done"


def pids(gang: Gang) -> list[int]:
    """The processes that said who they are."""
    said = [line.split() for _, line in gang.lines]
    return [int(words[1]) for words in said if words[0] in ("daemon", "apart", "deaf", "launcher")]


async def none_remain(gang: Gang, nodes: list[Node]) -> None:
    assert len(pids(gang)) >= 4
    assert not [pid for pid in pids(gang) if is_running(pid)]
    assert await gang.left(nodes[0]) == []


def test_cancelling_stops_everything_before_it_returns(cluster: PrivateCluster, gang: Gang) -> None:
    """Ctrl-C in the terminal and "mark failed" in the UI both come as a cancellation."""

    async def work(nodes: list[Node]) -> None:
        running = asyncio.create_task(gang.run(gang.places(nodes, bash("echo launcher $$; sleep 60 & wait"))))
        await until(lambda: len(gang.lines) == 2)
        started = time.monotonic()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not any(is_running(pid) for pid in pids(gang))
        assert time.monotonic() - started < 3
        assert [gang.exit_status(node).state for node in nodes] == ["stopped", "stopped"]
        assert await gang.left(nodes[0]) == []

    on_both(cluster, work)


def test_cancelling_before_the_session_stands_stops_what_starts(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        for trial in range(2):
            name = f"ssd-n2-cold-r1-t{trial + 1}"
            running = asyncio.create_task(gang.run(gang.places(nodes, bash("sleep 60"), trial=name)))
            await asyncio.sleep(0.02 * trial)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await gang.left(nodes[0]) == []

    on_both(cluster, work)


def test_what_ignores_term_or_has_gone_its_own_way_is_ended_too_however_often_one_cancels(
    cluster: PrivateCluster, gang: Gang
) -> None:
    async def work(nodes: list[Node]) -> None:
        places = gang.places(nodes, bash(RESIST + WAIT), grace_s=0.6)
        running = asyncio.create_task(gang.run(places))
        await until(lambda: len(pids(gang)) == 8)
        running.cancel()
        for _ in range(3):
            await asyncio.sleep(0.1)
            running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await none_remain(gang, nodes)
        assert all(gang.exit_status(node).ended_processes >= 4 for node in nodes)
        assert all(gang.exit_status(node).left_processes == 0 for node in nodes)

    on_both(cluster, work)


def test_the_same_when_another_node_fails(cluster: PrivateCluster, gang: Gang, tmp_path: Path) -> None:
    async def work(nodes: list[Node]) -> None:
        here = shlex.quote(f"{tmp_path}/1")
        commands = {
            "node1": bash(f"{RESIST}\nsleep 0.2; touch {here}; {WAIT}"),
            "node2": bash(f"until [ -e {here} ]; do sleep 0.05; done; exit 9"),
        }
        with pytest.raises(GangError, match=r"^node2: failed: exit status 9"):
            await gang.run(gang.places(nodes, commands, grace_s=0.5))
        await none_remain(gang, nodes)

    on_both(cluster, work)


@pytest.mark.parametrize(("status", "state"), [(0, "succeeded"), (9, "failed")])
def test_the_same_when_the_launcher_ends_and_leaves_them(
    cluster: PrivateCluster, gang: Gang, status: int, state: str
) -> None:
    async def work(nodes: list[Node]) -> None:
        running = gang.run(gang.places(nodes[:1], bash(f"{RESIST}\nsleep 0.3; exit {status}"), grace_s=0.5))
        if status == 0:
            await running
        else:
            with pytest.raises(GangError, match="exit status 9"):
                await running
        await none_remain(gang, nodes)
        assert gang.exit_status(nodes[0]).state == state

    on_both(cluster, work)


def test_the_grace_period_is_given(cluster: PrivateCluster, gang: Gang) -> None:
    async def work(nodes: list[Node]) -> None:
        script = "trap 'sleep 0.5; echo tidied up; exit 0' TERM; echo launcher $$; sleep 60 & wait"
        running = asyncio.create_task(gang.run(gang.places(nodes[:1], bash(script), grace_s=10)))
        await until(lambda: len(gang.lines) == 1)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert gang.lines[-1] == ("node1", "tidied up")

    on_both(cluster, work)


class Client:
    """An orchestrator in a process of its own."""

    def __init__(self, cluster: PrivateCluster, gang: Gang, lease_s: float, script: str) -> None:
        checkout = settings.CHECKOUT
        program = Path(__file__).with_name("gang_client.py")
        arguments = [str(cluster.local.folder.parent), gang.release, gang.run_id, str(lease_s), script]
        self.process = subprocess.Popen(
            # Where pytest was started with SIGINT ignored (its workers are), its children would ignore it as well.
            ["env", "--default-signal=INT", sys.executable, program, *arguments],
            env={**os.environ, "PYTHONPATH": f"{checkout}:{checkout / 'include'}"},
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def heard(self, *lines: str) -> None:
        assert sorted(self.say() for _ in lines) == sorted(lines)


@pytest.fixture
def client(cluster: PrivateCluster, gang: Gang) -> Iterator[Callable[..., Client]]:
    """`client(lease_s=, script=)`: it is killed in the end, if it still runs."""
    started: list[Client] = []

    def start(lease_s: float, script: str) -> Client:
        started.append(Client(cluster, gang, lease_s, script))
        return started[-1]

    yield start
    for one in started:
        one.process.kill()
        one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()


def states(cluster: PrivateCluster, gang: Gang) -> list[str]:
    """How both nodes' parts ended, as far as they have."""

    async def read() -> list[str]:
        async with cluster.connected("node1", "node2") as nodes:
            return [gang.exit_status(node).state for node in nodes]

    return asyncio.run(read())


def test_nobody_renews_the_lease_and_each_node_ends_its_part_by_itself(
    cluster: PrivateCluster, gang: Gang, client: Callable[..., Client]
) -> None:
    orchestrator = client(lease_s=2, script="echo up; sleep 60")
    orchestrator.heard("node1 up", "node2 up")
    orchestrator.process.kill()
    killed = time.monotonic()
    time.sleep(0.8)
    assert carrying(gang.run_id), "the gang is to live on while an orchestrator may come back"
    asyncio.run(until(lambda: not carrying(gang.run_id), limit_s=6))
    assert 1 < time.monotonic() - killed < 5
    asyncio.run(
        until(lambda: len(list(cluster.local.folder.glob(f"*/home/scaleout/runs/{gang.run_id}/*/*/exit.json"))) == 2)
    )
    assert states(cluster, gang) == ["lease_expired", "lease_expired"]


def test_an_orchestrator_that_stepped_away_finds_its_gang_ended_and_says_so(
    cluster: PrivateCluster, gang: Gang, client: Callable[..., Client]
) -> None:
    orchestrator = client(lease_s=1, script="echo up; sleep 60")
    orchestrator.heard("node1 up", "node2 up")
    orchestrator.process.send_signal(signal.SIGSTOP)
    asyncio.run(until(lambda: not carrying(gang.run_id), limit_s=6))
    orchestrator.process.send_signal(signal.SIGCONT)
    assert "lease_expired: nobody renewed the lease for 1 s" in orchestrator.say()
    assert states(cluster, gang) == ["lease_expired", "lease_expired"]


def test_an_orchestrator_that_is_back_within_the_lease_goes_on(
    cluster: PrivateCluster, gang: Gang, client: Callable[..., Client]
) -> None:
    orchestrator = client(lease_s=1.6, script="echo up; sleep 1.9; echo done")
    orchestrator.heard("node1 up", "node2 up")
    orchestrator.process.send_signal(signal.SIGSTOP)
    time.sleep(0.7)
    orchestrator.process.send_signal(signal.SIGCONT)
    orchestrator.heard("node1 done", "node2 done")
    assert orchestrator.say() == "succeeded"


def test_ctrl_c_stops_the_gang_before_the_orchestrator_ends(
    cluster: PrivateCluster, gang: Gang, client: Callable[..., Client]
) -> None:
    orchestrator = client(lease_s=30, script="echo up; sleep 60")
    orchestrator.heard("node1 up", "node2 up")
    orchestrator.process.send_signal(signal.SIGINT)
    assert orchestrator.process.wait(timeout=5) != 0
    assert not carrying(gang.run_id)
    assert states(cluster, gang) == ["stopped", "stopped"]
