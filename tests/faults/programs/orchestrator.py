"""An orchestrator in a process of its own, to be killed or interrupted: does one thing to one gang.

Usage: orchestrator.py '{"action": …}'    run, pick_up or deploy; the keys are those of `launch.Order`

Prints one JSON object per line, each with `t`, Unix time: {"connected"}, {"line": [node, text]}…, and one of
{"succeeded": states}, {"failed": sentence, "kind": class}, {"cancelled"}.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from scaleout import settings
from scaleout.errors import ScaleoutError
from scaleout.remote import gang, release
from scaleout.remote.fleet import connected, each
from scaleout.remote.node import Node
from scaleout.remote.target import Target
from training.wire.job import Job

PROGRAMS = Path(__file__).parent
CONNECT_LIMIT_S = ANSWER_LIMIT_S = 20.0
PYTHON = str(settings.node_python())


def say(**what: Any) -> None:
    os.write(1, json.dumps({"t": time.time(), **what}).encode() + b"\n")


async def places(order: dict[str, Any], nodes: list[Node]) -> list[gang.Place]:
    port = (await nodes[0].ask("network", "free-port", timeout_s=ANSWER_LIMIT_S))["port"]
    asked = [node.ask("network", "interface", nodes[0].host, timeout_s=ANSWER_LIMIT_S) for node in nodes]
    interfaces = [answer["interface"] for answer in await asyncio.gather(*asked)]
    return [
        place(order, nodes, rank, f"{nodes[0].host} {port}".split(), interface)
        for rank, interface in enumerate(interfaces)
    ]


def place(order: dict[str, Any], nodes: list[Node], rank: int, master: list[str], interface: str) -> gang.Place:
    node = nodes[rank]
    folder = f"{node.home}/scaleout/runs/{order['run_id']}/{order['trial']}/{node.name}"
    path = release.release_path(node, "~/scaleout", order["release"])
    job = Job(
        run_id=order["run_id"],
        trial=order["trial"],
        node=node.name,
        node_rank=rank,
        nodes=[one.name for one in nodes],
        release=order["release"],
        command=COMMANDS[order["ranks"]](order, rank, len(nodes), master, folder),
        cwd=path,
        environment={"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface},
        lease_s=order["lease_s"],
        grace_s=order["grace_s"],
        timeout_s=None,
        telemetry_interval_s=0.5,
    )
    return gang.Place(node, job, path, folder)


def ring(order: dict[str, Any], rank: int, nodes: int, master: list[str], folder: str) -> list[str]:
    counts = [str(rank), str(nodes), str(order["per_node"])]
    return [PYTHON, str(PROGRAMS / "ring_launcher.py"), *counts, *master, folder, str(order["step_s"])]


def torch(order: dict[str, Any], rank: int, nodes: int, master: list[str], folder: str) -> list[str]:
    address, port = master
    return [
        PYTHON, "-m", "torch.distributed.run", f"--nproc_per_node={order['per_node']}", f"--nnodes={nodes}",
        f"--node_rank={rank}", f"--master_addr={address}", f"--master_port={port}", str(PROGRAMS / "torch_rank.py"),
        folder, str(order["step_s"]),
    ]  # fmt: skip


COMMANDS = {"ring": ring, "torch": torch}


async def deploy(order: dict[str, Any], nodes: list[Node]) -> None:
    archive = release.pack()
    await each("deploying", nodes, lambda node: release.deploy(node, "~/scaleout", order["release"], archive))
    say(succeeded=[])


async def hold(order: dict[str, Any], nodes: list[Node]) -> None:
    ways = {"run": gang.run_gang, "pick_up": gang.pick_up}
    made = await places(order, nodes)
    say(starting=True)
    statuses = await ways[order["action"]](
        made,
        lambda node, text: say(line=[node, text]),
        patience_s=order["patience_s"],
        no_progress_s=order["no_progress_s"],
    )
    say(succeeded=[status.state for status in statuses])


async def main() -> None:
    order = json.loads(sys.argv[1])
    targets = [Target(**target) for target in order["targets"]]
    try:
        async with connected(targets, python="python3", timeout_s=CONNECT_LIMIT_S) as nodes:
            say(connected=True)
            await (deploy if order["action"] == "deploy" else hold)(order, nodes)
    except ScaleoutError as error:
        say(failed=str(error), kind=type(error).__name__)
    except asyncio.CancelledError:
        say(cancelled=True)
        raise


if __name__ == "__main__":
    asyncio.run(main())
