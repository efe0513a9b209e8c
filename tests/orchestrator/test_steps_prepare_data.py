"""prepare_data, against real hosts whose programs are stand-ins: how the nodes make a data set together, and what ends that."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from gangs import until
from private_cluster import PrivateCluster, carrying
from sessions import NODES, session_on

from scaleout.errors import FleetError, GangError, NodeError, PlanError, SupersededError
from scaleout.results.store import IN_FLIGHT, PREPARE_FILE
from scaleout.steps import cluster_lock
from scaleout.steps.prepare_data import prepare_data
from scaleout.steps.seen import seen_alike
from scaleout.steps.session import Session
from scaleout.steps.settle import settle_all

HERE = Path(__file__).parent
RELEASE = "stand-ins"
CONF = {"preset": "quick", "workloads": ["ssd"], "nodes": [2], "dataset_factor": 3}
STANDING = "about 6 of 12 images of ssd are made and 6 are left; run the sweep again, and it goes on from the shards that are whole"


def in_a_loop(test: Callable[[Preparation], Awaitable[None]]) -> Callable[[Preparation], None]:
    @wraps(test)
    def run(preparation: Preparation) -> None:
        asyncio.run(test(preparation))

    return run


@dataclass
class Preparation:
    """The data of one sweep, which may be prepared again and again."""

    hosts: PrivateCluster
    session: Session
    said: list[str] = field(default_factory=list)

    @property
    def out(self) -> Path:
        return Path(self.hosts.local.nas) / Path(self.session.sweep.prepared_path("ssd")).relative_to("~/nas")

    def make(self, node: str, **behaviour: Any) -> None:
        """What making does on that node."""
        (self.hosts.home(node) / "inflate.json").write_text(json.dumps(behaviour))

    def behave(self) -> None:
        for node in NODES:
            (self.hosts.home(node) / "inflate.json").unlink(missing_ok=True)

    def images(self) -> int:
        return len(list(self.out.glob("train2017/*/*.png")))

    def shards(self) -> int:
        return len(list(self.out.glob("aachen_*.json")))

    async def begun(self) -> asyncio.Task[None]:
        """An attempt that has heard of a shard made on each node, and waits with the next."""
        for node in NODES:
            self.make(node, waits=True)
        attempt = asyncio.create_task(prepare_data(self.session))
        waiting = {f"[{node}] waits with the next shard" for node in NODES}
        await until(lambda: attempt.done() or waiting <= set(self.said), 30)
        assert not attempt.done(), attempt.exception()
        assert self.shards() == len(NODES)
        return attempt

    def died(self) -> None:
        """Such an attempt, whose process was then killed."""
        pid = os.fork()
        if pid == 0:
            try:
                asyncio.run(self.begun_and_killed())
            finally:
                os._exit(1)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    async def begun_and_killed(self) -> None:
        await self.begun()
        os.kill(os.getpid(), signal.SIGKILL)

    def record(self) -> dict[str, Any]:
        return self.session.store.read(PREPARE_FILE)

    def left(self) -> list[Any]:
        return carrying(self.session.sweep.run_id)

    def dataset(self) -> dict[str, Any]:
        sweep = self.session.store.sweep()
        assert sweep.ready
        return sweep.datasets["ssd"]


@pytest.fixture(scope="module")
def release(cluster: PrivateCluster, deployed: str) -> str:
    """A release on both nodes whose programs for data are the stand-ins."""
    for node in NODES:
        releases = cluster.home(node) / "scaleout" / "releases"
        shutil.copytree(releases / deployed, releases / RELEASE)
        for stand_in, program in (("convert", "data/convert.py"), ("inflate", "ssd/inflate.py")):
            shutil.copy(HERE / f"stand_in_{stand_in}.py", releases / RELEASE / "training" / program)
    return RELEASE


@pytest.fixture
def preparation(
    cluster: PrivateCluster, release: str, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Preparation]:
    yield from prepared(cluster, release, run_id, tmp_path, monkeypatch, CONF)


def prepared(
    cluster: PrivateCluster,
    release: str,
    run_id: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    conf: dict[str, Any],
    **changes: Any,
) -> Iterator[Preparation]:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path / "home"))
    said: list[str] = []
    changes = {"prepared": f"~/nas/{run_id}", "node_patience_s": 1.5, "lease_s": 2, **changes}
    session = session_on(cluster, run_id, release, conf, said, **changes)
    asyncio.run(cluster_lock.take(session))
    found = Preparation(cluster, session, said)
    try:
        yield found
    finally:
        for name in NODES:
            cluster.host(name).start()
        found.behave()
        asyncio.run(cluster_lock.give_back(session))


@in_a_loop
async def test_all_nodes_make_their_part_and_the_result_is_recorded(preparation: Preparation) -> None:
    await prepare_data(preparation.session)
    assert preparation.images() == 12
    dataset = preparation.dataset()
    assert {key: dataset[key] for key in ("images", "factor", "method", "format", "mean_mb", "seed", "skipped")} == {
        "images": 12, "factor": 3, "method": "augment", "format": "png", "mean_mb": 2.88, "seed": 0, "skipped": False,
    }  # fmt: skip
    assert dataset["path"].endswith("-x3") and dataset["base_manifest_sha256"] != dataset["manifest_sha256"]
    said = preparation.said
    assert "[node1] makes 2 shards" in said and "[node2] makes 2 shards" in said
    assert "[node1] 6 of 6 images, 10.0 images/s, 2.5 MB/s, 0 s left" in said
    assert "ssd: 12 of 12 images, 20.0 images/s, 5.0 MB/s, 0.0 s left on 2 nodes" in said
    assert [line for line in said if line.startswith("{")] == []
    commands = [line for line in said if re.match(r"\[node\d\] \$ ", line)]
    assert ["--phase plan" in line for line in commands] == [False, True, False, False, False]
    assert commands[2].endswith("--phase make --node 0 --nodes 2") and commands[3].endswith("--node 1 --nodes 2")
    assert preparation.left() == [] and preparation.record()["failure"] is None


@in_a_loop
async def test_a_data_set_that_is_there_is_not_made_again(preparation: Preparation) -> None:
    await prepare_data(preparation.session)
    first = preparation.dataset()
    preparation.said.clear()
    await prepare_data(preparation.session)
    assert preparation.dataset() == first | {"skipped": True, "seconds": 0.1}
    assert not any("--phase make" in line for line in preparation.said)
    assert preparation.said[-1] == "ssd: 12 training images, 0.0 MB to read, 0.00 MB each (nothing had changed)"


@in_a_loop
async def test_a_node_that_fails_is_named_with_its_sentence_and_the_next_attempt_goes_on(
    preparation: Preparation,
) -> None:
    preparation.make("node1", waits=True)
    preparation.make("node2", exit=2, says="error: /mnt: no space left on device; make room")
    with pytest.raises(NodeError) as refused:
        await prepare_data(preparation.session)
    assert str(refused.value) == f"node2: /mnt: no space left on device; make room; {STANDING}"
    assert preparation.left() == [] and not preparation.session.store.sweep().ready
    preparation.behave()
    await prepare_data(preparation.session)
    assert "ssd: 6 of 12 images are to be made, 0.0 GB, on node1, node2" in preparation.said
    assert preparation.dataset()["images"] == preparation.images() == 12


@in_a_loop
async def test_a_program_that_crashes_shows_the_end_of_its_log(preparation: Preparation) -> None:
    preparation.make("node1", waits=True)
    preparation.make("node2", exit=1, says="ZeroDivisionError: division by zero")
    with pytest.raises(GangError) as refused:
        await prepare_data(preparation.session)
    first, *tail = str(refused.value).splitlines()
    assert first == f"node2: failed: exit status 1; {STANDING}"
    assert tail[-1].strip() == "ZeroDivisionError: division by zero"


@in_a_loop
async def test_a_node_that_vanishes_stops_all_and_is_named(preparation: Preparation) -> None:
    attempt = await preparation.begun()
    preparation.hosts.stop_daemon("node2")
    with pytest.raises(GangError) as refused:
        await attempt
    assert re.fullmatch(
        rf"node2: the connection was lost.* could not be reached again; {re.escape(STANDING)}", str(refused.value)
    )
    await until(lambda: not preparation.left(), 20)  # on the node itself, the lease
    preparation.hosts.host("node2").start()
    preparation.behave()
    await prepare_data(preparation.session)
    assert preparation.dataset()["images"] == 12


@in_a_loop
async def test_a_request_to_stop_ends_it_on_every_node_at_once(preparation: Preparation) -> None:
    attempt = await preparation.begun()
    attempt.cancel()
    with pytest.raises(asyncio.CancelledError):
        await attempt
    assert preparation.left() == []
    assert preparation.record()["failure"] == "stopped on request"
    assert preparation.said[-1] == STANDING


def test_after_a_death_of_the_orchestrator_the_next_attempt_goes_on(preparation: Preparation) -> None:
    preparation.died()
    assert preparation.record()["failure"] == IN_FLIGHT
    preparation.behave()
    asyncio.run(prepare_data(preparation.session))
    assert "the preparation of data did not report its end: ending what runs of it" in preparation.said
    assert "ssd: 6 of 12 images are to be made, 0.0 GB, on node1, node2" in preparation.said
    assert preparation.dataset()["images"] == preparation.images() == 12
    assert preparation.left() == []


def test_what_a_dead_attempt_left_is_ended_before_the_lock_is_given_back(preparation: Preparation) -> None:
    preparation.died()
    asyncio.run(settle_all(preparation.session))
    assert preparation.left() == [] and preparation.record()["failure"] == "stopped on request"


@in_a_loop
async def test_an_attempt_that_lives_on_lets_go_when_the_next_one_begins(preparation: Preparation) -> None:
    older = await preparation.begun()
    preparation.behave()
    await prepare_data(preparation.session)
    with pytest.raises(SupersededError):
        await older
    assert preparation.dataset()["images"] == 12 and preparation.record()["failure"] is None


def test_the_frames_themselves_are_not_inflated(
    cluster: PrivateCluster, release: str, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for preparation in prepared(cluster, release, run_id, tmp_path, monkeypatch, {**CONF, "dataset_factor": 1}):
        asyncio.run(prepare_data(preparation.session))
        dataset = preparation.dataset()
        assert (dataset["images"], dataset["factor"], dataset["method"], dataset["seed"]) == (4, 1, None, None)
        assert dataset["base_manifest_sha256"] == dataset["manifest_sha256"]
        assert not any("inflate" in line for line in preparation.said)


def test_a_node_without_the_mount_is_named(
    cluster: PrivateCluster, release: str, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for preparation in prepared(cluster, release, run_id, tmp_path, monkeypatch, CONF, prepared="~/of this node's own"):
        with pytest.raises(FleetError, match=r"node2: does not see .*/manifest.json as node1 sees it: is it mounted\?"):
            asyncio.run(prepare_data(preparation.session))


@in_a_loop
async def test_a_node_that_sees_a_file_late_is_waited_for(preparation: Preparation) -> None:
    homes = [preparation.hosts.home(node) for node in NODES]
    (homes[0] / "late").write_text("here")
    (homes[1] / "late").write_text("an older one")

    async def look() -> None:
        async with preparation.session.connected(NODES) as nodes:
            await seen_alike(preparation.session, nodes, "~/late")

    looking = asyncio.create_task(look())
    await asyncio.sleep(0.7)
    assert not looking.done()
    (homes[1] / "late").write_text("here")
    await looking
    (homes[0] / "late").unlink()
    with pytest.raises(NodeError, match="node1: ~/late: cannot be read"):
        await look()


def test_more_ranks_than_images_are_refused(
    cluster: PrivateCluster, release: str, run_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = {**CONF, "dataset_factor": 1, "processes_per_node": 3}
    for preparation in prepared(cluster, release, run_id, tmp_path, monkeypatch, conf):
        with pytest.raises(PlanError, match="has 4 training images and the largest trial has 6 ranks"):
            asyncio.run(prepare_data(preparation.session))
