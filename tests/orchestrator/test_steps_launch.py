"""launch, against real hosts whose launcher is a script of the test: what becomes of a try that an earlier attempt began."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import psutil
import pytest
from gangs import until
from private_cluster import PrivateCluster, carrying, with_variable
from sessions import NODES, session_on
from trials import edit_json

from scaleout import settings
from scaleout.errors import FleetError, GangError, LockHeldError, ScaleoutError, SupersededError
from scaleout.results.store import CACHES_FILE, IN_FLIGHT, LAUNCH_FILE, ROW_FILE, SweepStore
from scaleout.steps import cluster_lock
from scaleout.steps.collect import collect
from scaleout.steps.empty_caches import LASTING_S, empty_caches
from scaleout.steps.launch import launch
from scaleout.steps.session import Session
from scaleout.steps.settle import settle

FIRST, SECOND = "ssd-n2-cold-r1-t1", "ssd-n2-cold-r1-t2"
TALK = 'echo up; i=0; while [ ! -e "$HOME/go on" ]; do i=$((i+1)); echo "line $i"; sleep 0.05; done; echo "said $i"'


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def run(launches: Launches, **parameters: Any) -> None:
        asyncio.run(test(launches, **parameters))

    return run


@dataclass
class Launches:
    """The one trial of a sweep, which may be launched again and again."""

    hosts: PrivateCluster
    session: Session
    said: list[str] = field(default_factory=list)

    def ranks(self, script: str, *nodes: str) -> None:
        """What the launcher does on these nodes, or on all of them."""
        for node in nodes or NODES:
            (self.hosts.home(node) / "launcher.sh").write_text(script + "\n")

    def go_on(self) -> None:
        for node in NODES:
            (self.hosts.home(node) / "go on").touch()

    async def launch(self, order: int = 5) -> None:
        await launch(self.session, self.session.sweep.trials[0], order)

    async def begun(self, order: int = 5) -> asyncio.Task[None]:
        """An attempt whose ranks have said something on both nodes."""
        attempt = asyncio.create_task(self.launch(order))
        await until(lambda: attempt.done() or {"[node1] line 3", "[node2] line 3"} <= set(self.said), 40)
        assert not attempt.done(), attempt.exception()
        return attempt

    def died(self, order: int = 5) -> None:
        """An attempt that ended without a word: its process was killed when the ranks had said something on both nodes."""
        pid = os.fork()
        if pid == 0:
            asyncio.run(self._die(order))
        _, status = os.waitpid(pid, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL

    async def _die(self, order: int) -> None:
        try:
            await self.begun(order)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)

    def record(self, folder: str) -> dict[str, Any]:
        return self.session.store.read(folder, LAUNCH_FILE)

    def flushes(self) -> int:
        """How often the caches were emptied."""
        return sum(line.startswith("array: flushed") for line in self.said)

    def tries(self) -> list[str]:
        return sorted(path.parent.name for path in self.session.store.folder.glob(f"*/{LAUNCH_FILE}"))

    def left(self, *nodes: str) -> list[psutil.Process]:
        """What runs of the trial on these nodes, or on all of them."""
        found = []
        for process in carrying(self.session.sweep.run_id):
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.environ().get("SCALEOUT_NODE") in (nodes or NODES):
                    found.append(process)
        return found


@pytest.fixture
def launches(
    cluster: PrivateCluster, deployed: str, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Launches]:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path / "home"))
    python = tmp_path / "python3"
    real = shlex.quote(str(settings.node_python()))
    python.write_text(
        f'#!/bin/sh\ncase "$1 $2" in "-m torch.distributed.run") exec sh "$HOME/launcher.sh" ;; esac\nexec {real} "$@"\n'
    )
    python.chmod(0o755)
    said: list[str] = []
    conf = {"preset": "quick", "workloads": ["ssd"], "nodes": [2], "length": {"steps": 2}, "window_steps": 1}
    session = session_on(cluster, run_id, deployed, conf, said, python=str(python))
    session.store.update(ready=True)
    asyncio.run(cluster_lock.take(session))
    try:
        yield Launches(cluster, session, said)
    finally:
        for name in NODES:
            cluster.host(name).start()
        asyncio.run(cluster_lock.give_back(session))
        for name in NODES:
            for file in ("go on", "launcher.sh"):
                (cluster.home(name) / file).unlink(missing_ok=True)


@in_a_loop
async def test_the_first_try_succeeds_and_is_not_repeated_by_a_retry_of_the_same_order(launches: Launches) -> None:
    launches.ranks("echo up")
    await launches.launch()
    assert launches.record(FIRST)["exit"] == {"node1": "succeeded", "node2": "succeeded"}
    await launches.launch()
    assert launches.tries() == [FIRST]
    assert launches.said.count("[node1] up") == 1


@in_a_loop
async def test_a_training_that_failed_is_not_started_again_by_a_retry_but_by_a_new_order(launches: Launches) -> None:
    launches.ranks("exit 9", "node2")
    launches.ranks("sleep 60", "node1")
    with pytest.raises(GangError, match="node2: failed: exit status 9") as first:
        await launches.launch(order=5)
    with pytest.raises(GangError) as again:
        await launches.launch(order=5)
    assert str(again.value) == str(first.value)
    assert launches.tries() == [FIRST]
    launches.ranks("true")
    await launches.launch(order=6)
    assert launches.tries() == [FIRST, SECOND]
    assert (launches.session.store.folder / SECOND / "caches.json").exists()


@in_a_loop
async def test_a_launch_that_a_person_orders_again_finds_caches_emptied_for_it(launches: Launches) -> None:
    """The one before it failed to reach a node; the rest of the sweep has read the same data since."""
    launches.ranks("echo up")
    await empty_caches(launches.session, launches.session.sweep.trials[0])
    launches.hosts.host("node2").stop()
    for _ in range(2):  # a retry of Airflow's belongs to the same order
        with pytest.raises(FleetError):
            await launches.launch(order=5)
    launches.hosts.host("node2").start()
    assert launches.flushes() == 1 and launches.tries() == []
    await launches.launch(order=6)
    assert launches.flushes() == 2 and launches.tries() == [FIRST]


@in_a_loop
@pytest.mark.parametrize("age_s", [-60, LASTING_S + 1])
async def test_caches_that_were_emptied_long_ago_are_emptied_again(launches: Launches, age_s: float) -> None:
    """As where Airflow was down between the two tasks; a clock that was set back proves no age."""
    launches.ranks("echo up")
    await empty_caches(launches.session, launches.session.sweep.trials[0])
    caches = launches.session.store.folder / FIRST / CACHES_FILE
    edit_json(caches, "ended_wall_s", value=time.time() - age_s)
    await launches.launch()
    assert launches.flushes() == 2


@in_a_loop
async def test_a_gang_that_runs_on_is_picked_up_with_its_log_from_the_first_line(launches: Launches) -> None:
    launches.ranks(TALK)
    launches.died()
    assert launches.record(FIRST)["failure"] == IN_FLIGHT
    retry = await launches.begun()
    launches.go_on()
    await retry
    assert launches.tries() == [FIRST]
    assert launches.record(FIRST)["failure"] is None and len(launches.record(FIRST)["picked_up_wall_s"]) == 1
    for node in NODES:
        told = [line.removeprefix(f"[{node}] ") for line in launches.said if line.startswith(f"[{node}] ")]
        assert told[0] == "up" and told[-1] == f"said {len(told) - 2}"
        assert told[1:-1] == [f"line {i}" for i in range(1, len(told) - 1)]


@in_a_loop
async def test_a_gang_that_ended_while_nobody_was_there_is_told_of_and_not_repeated(launches: Launches) -> None:
    launches.ranks(TALK + "; exit 3")
    launches.died()
    launches.go_on()
    await until(lambda: not launches.left())
    with pytest.raises(GangError, match="failed: exit status 3"):
        await launches.launch()
    assert launches.tries() == [FIRST]


@in_a_loop
async def test_an_attempt_that_lives_on_lets_go_of_its_gang_and_does_not_record_its_end(launches: Launches) -> None:
    launches.ranks(TALK)
    older = await launches.begun()
    launches.said.clear()
    newer = await launches.begun()
    with pytest.raises(SupersededError):
        await older
    assert launches.record(FIRST)["failure"] == IN_FLIGHT
    launches.go_on()
    await newer
    assert launches.tries() == [FIRST] and launches.record(FIRST)["failure"] is None


@in_a_loop
async def test_a_gang_whose_part_died_is_ended_and_launched_anew(launches: Launches) -> None:
    launches.ranks(TALK)
    launches.died()
    folder = f"{launches.hosts.home('node2')}/scaleout/runs/{launches.session.sweep.slug}/{FIRST}/node2"
    of_node2 = with_variable(f"SCALEOUT_RUN_FOLDER={folder}".encode())
    assert len(of_node2) > 2
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none shall see another one die
        for process in of_node2:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
    launches.ranks("echo anew")
    await launches.launch()
    assert launches.tries() == [FIRST, SECOND]
    assert launches.record(FIRST)["failure"] == "abandoned: node2: its part died with its supervisor"
    assert launches.record(SECOND)["failure"] is None
    assert launches.left() == []
    with pytest.raises(ScaleoutError, match="event log"):
        await collect(launches.session, launches.session.sweep.trials[0])
    kept = launches.session.store.folder
    assert (kept / FIRST / "node1" / "log").read_text().startswith("up\nline 1\n")
    assert (kept / SECOND / "node2" / "log").read_text() == "anew\n"


@in_a_loop
async def test_a_gang_that_an_attempt_had_begun_to_stop_when_it_died_is_launched_anew(launches: Launches) -> None:
    """Why it did, nobody knows any more: what a person asks for and what a rank does stands written before."""
    launches.ranks(TALK)
    launches.died()
    folder = f"{launches.hosts.home('node2')}/scaleout/runs/{launches.session.sweep.slug}/{FIRST}/node2"
    Path(folder, "stop").touch()
    await until(lambda: not launches.left("node2"))
    launches.ranks("echo anew")
    await launches.launch()
    assert launches.tries() == [FIRST, SECOND]
    assert (
        launches.record(FIRST)["failure"] == "abandoned: node2: its part was stopped by an attempt that died meanwhile"
    )
    assert launches.record(SECOND)["failure"] is None
    assert launches.left() == []


@in_a_loop
async def test_a_node_out_of_reach_is_named_and_the_others_parts_are_ended(launches: Launches) -> None:
    launches.ranks(TALK)
    launches.died()
    launches.hosts.stop_daemon("node2")
    with pytest.raises(FleetError, match="node2: cannot connect"):
        await launches.launch()
    assert launches.record(FIRST)["failure"].startswith("abandoned: connecting failed on 1 node")
    assert launches.tries() == [FIRST]
    assert launches.left("node1") == [] and launches.left("node2")
    launches.go_on()
    await until(lambda: not launches.left())


@in_a_loop
async def test_a_lock_that_ran_out_meanwhile_is_taken_again_unless_another_sweep_has_it(launches: Launches) -> None:
    launches.ranks(TALK)
    launches.died()
    await cluster_lock.give_back(launches.session)
    retry = await launches.begun()
    launches.go_on()
    await retry
    await cluster_lock.give_back(launches.session)
    other = SweepStore(f"{launches.session.sweep.run_id}-other")
    sweep = launches.session.sweep.model_copy(update={"run_id": f"{launches.session.sweep.run_id}-other"})
    theirs = Session(other, sweep, launches.session.targets, launches.session.say)
    await cluster_lock.take(theirs)
    try:
        launches.session.store.write(launches.record(FIRST) | {"failure": IN_FLIGHT}, FIRST, LAUNCH_FILE)
        with pytest.raises(LockHeldError, match="is held by the sweep"):
            await launches.launch()
    finally:
        await cluster_lock.give_back(theirs)


@in_a_loop
async def test_a_launch_that_is_stopped_says_so_before_its_gang_has_ended(launches: Launches) -> None:
    launches.ranks("trap 'sleep 1; exit' TERM; echo up; i=0; while :; do i=$((i+1)); echo \"line $i\"; sleep 0.1; done")
    attempt = await launches.begun()
    attempt.cancel()
    await until(lambda: launches.record(FIRST)["failure"] == "stopped on request", 5)
    assert not attempt.done()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert launches.left() == []
    with pytest.raises(GangError, match="stopped on request"):
        await launches.launch()


@in_a_loop
async def test_what_comes_after_a_launch_first_ends_a_gang_that_airflow_holds_to_be_over(launches: Launches) -> None:
    launches.ranks(TALK)
    launches.died()
    session = launches.session
    await settle(session, session.sweep.trials)
    assert launches.left() == []
    assert launches.record(FIRST)["failure"] == "stopped on request"
    assert session.store.sweep().stopped == f"the sweep was stopped in {FIRST}"
    launches.said.clear()
    await settle(session, session.sweep.trials)
    assert launches.said == []


@in_a_loop
async def test_a_node_that_fell_takes_nothing_with_it_of_what_the_others_know(launches: Launches) -> None:
    launches.ranks("echo works; sleep 60", "node1")
    launches.ranks("echo falls; exit 9", "node2")
    with pytest.raises(GangError, match=r"^node2: failed: exit status 9"):
        await launches.launch()
    launches.hosts.stop_daemon("node2")
    try:
        with pytest.raises(ScaleoutError, match="node2: failed: exit status 9"):
            await collect(launches.session, launches.session.sweep.trials[0])
    finally:
        launches.hosts.host("node2").start()
    store = launches.session.store
    assert (store.folder / FIRST / "node1" / "log").read_text() == "works\n"
    assert store.read(FIRST, ROW_FILE)["status"] == "failed"
    assert any(line.startswith("node2: cannot connect") and "stays there" in line for line in launches.said)


@in_a_loop
async def test_a_node_may_be_out_of_reach_for_a_moment_when_its_gang_is_picked_up(launches: Launches) -> None:
    launches.ranks(TALK)
    launches.died()
    launches.hosts.stop_daemon("node2")
    retry = asyncio.create_task(launches.launch())
    await asyncio.sleep(1.5)
    assert not retry.done()
    launches.hosts.host("node2").start()
    await until(lambda: any("went on without an orchestrator" in line for line in launches.said), 20)
    launches.go_on()
    await retry
    assert launches.tries() == [FIRST] and launches.record(FIRST)["failure"] is None
