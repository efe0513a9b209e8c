"""What the command line asks of a cluster's nodes, with the connections of the local JSON file.

Node by node: when one cannot be reached, what the others say is wanted all the more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from scaleout import settings
from scaleout.config import files
from scaleout.errors import FleetError, NodeError
from scaleout.remote import lock
from scaleout.remote.fleet import connected
from scaleout.remote.node import Node
from scaleout.remote.target import Target, target_from_file

ANSWER_LIMIT_S = 30.0


@dataclass(frozen=True)
class Answers:
    """By node; `problems` are of those that could not be asked."""

    by_node: dict[str, dict[str, Any]]
    problems: list[NodeError]


def lock_holders() -> Answers:
    return asyncio.run(_each_alone(lock.holder))


def lock_taken_away() -> Answers:
    return asyncio.run(_each_alone(lock.force_release))


def marked_processes(run_id: str) -> Answers:
    return asyncio.run(_each_alone(lambda node, _: node.ask("processes", run_id, timeout_s=ANSWER_LIMIT_S)))


async def _each_alone(ask: Callable[[Node, str], Awaitable[dict[str, Any]]]) -> Answers:
    """`ask` of every node of the chosen cluster, with the cluster's remote root. Raises ConfigError."""
    cluster = files.load_cluster(settings.cluster_name())
    path = settings.connections_file()
    targets = [target_from_file(path, node.connection, node.name) for node in cluster.nodes]

    async def one(target: Target) -> dict[str, Any] | NodeError:
        try:
            async with connected([target], python=cluster.python, timeout_s=cluster.connect_timeout_s) as (node,):
                return await ask(node, cluster.remote_root)
        except FleetError as error:
            return error.problems[0]
        except NodeError as error:
            return error

    found = dict(zip([target.name for target in targets], await asyncio.gather(*map(one, targets)), strict=True))
    return Answers(
        by_node={name: answer for name, answer in found.items() if not isinstance(answer, NodeError)},
        problems=[answer for answer in found.values() if isinstance(answer, NodeError)],
    )
