"""Gangs of small programs on the private cluster."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from private_cluster import PrivateCluster

from scaleout.errors import GangError
from scaleout.remote.gang import Place, run_gang
from scaleout.remote.node import Node
from training.wire.job import EXIT_FILE, ExitStatus, Job
from training.wire.schema import read_json

Command = list[str]


def bash(script: str) -> Command:
    return ["bash", "-c", script]


async def until(what: Callable[[], bool], limit_s: float = 15.0) -> None:
    """Waits until `what` holds."""
    deadline = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)


@asynccontextmanager
async def slow_loop() -> AsyncIterator[None]:
    """What nodes send is seen late, and all at once."""

    async def hold_up() -> None:
        while True:
            time.sleep(0.03)  # noqa: ASYNC251 - the loop is what it holds up
            await asyncio.sleep(0)

    holding = asyncio.create_task(hold_up())
    try:
        yield
    finally:
        holding.cancel()


@dataclass
class Gang:
    """One trial. `lines` are what its nodes have said so far."""

    run_id: str
    release: str
    lines: list[tuple[str, str]] = field(default_factory=list)

    def places(
        self,
        nodes: Sequence[Node],
        commands: Command | Mapping[str, Command],
        *,
        trial: str = "ssd-n2-cold-r1-t1",
        cwd: str = "/",
        environment: Mapping[str, str] | None = None,
        lease_s: float = 20.0,
        grace_s: float = 5.0,
        timeout_s: float | None = None,
        telemetry_interval_s: float = 0.2,
    ) -> list[Place]:
        """`commands`: one for all nodes, or one each."""
        names = [node.name for node in nodes]
        return [
            Place(
                node,
                Job(
                    run_id=self.run_id,
                    trial=trial,
                    node=node.name,
                    node_rank=rank,
                    nodes=names,
                    release=self.release,
                    command=commands[node.name] if isinstance(commands, Mapping) else commands,
                    cwd=cwd,
                    environment=dict(environment or {}),
                    lease_s=lease_s,
                    grace_s=grace_s,
                    timeout_s=timeout_s,
                    telemetry_interval_s=telemetry_interval_s,
                ),
                f"{node.home}/scaleout/releases/{self.release}",
                self.folder(node, trial),
            )
            for rank, node in enumerate(nodes)
        ]

    def folder(self, node: Node, trial: str = "ssd-n2-cold-r1-t1") -> str:
        return f"{node.home}/scaleout/runs/{self.run_id}/{trial}/{node.name}"

    async def run(self, places: Sequence[Place]) -> list[ExitStatus]:
        return await run_gang(places, self.note)

    def note(self, node: str, line: str) -> None:
        self.lines.append((node, line))

    async def heard(self, line: str, *nodes: str) -> None:
        """Waits until each of these nodes has said the line."""
        await until(lambda: {(node, line) for node in nodes} <= set(self.lines))

    async def left(self, node: Node) -> list[dict]:
        """What the `processes` program finds of this run; the hosts share a machine, so one node sees all of it."""
        answer = await node.ask("processes", self.run_id, timeout_s=20)
        return answer["processes"]

    def exit_status(self, node: Node, trial: str = "ssd-n2-cold-r1-t1") -> ExitStatus:
        return read_json(ExitStatus, Path(self.folder(node, trial)) / EXIT_FILE)

    def telemetry(self, node: Node) -> list[dict]:
        path = Path(self.folder(node)) / "telemetry.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


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
