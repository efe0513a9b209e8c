"""What the command line asks of a cluster's nodes, with the connections of the local JSON file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from scaleout import settings
from scaleout.config import files
from scaleout.config.cluster import Cluster
from scaleout.remote import lock
from scaleout.remote.fleet import connected, each
from scaleout.remote.node import Node
from scaleout.remote.target import target_from_file

ANSWER_LIMIT_S = 30.0


async def lock_holders() -> dict[str, dict[str, Any]]:
    async with _nodes() as (cluster, nodes):
        return await lock.holders(nodes, cluster.remote_root)


async def lock_taken_away() -> None:
    async with _nodes() as (cluster, nodes):
        await lock.force_release(nodes, cluster.remote_root)


async def marked_processes(run_id: str) -> dict[str, dict[str, Any]]:
    async with _nodes() as (_, nodes):
        return await each("listing processes", nodes, lambda n: n.ask("processes", run_id, timeout_s=ANSWER_LIMIT_S))


@asynccontextmanager
async def _nodes() -> AsyncIterator[tuple[Cluster, list[Node]]]:
    """All nodes of the chosen cluster. Raises ConfigError, FleetError."""
    cluster = files.load_cluster(settings.cluster_name())
    path = settings.connections_file()
    targets = [target_from_file(path, node.connection, node.name) for node in cluster.nodes]
    async with connected(targets, python=cluster.python, timeout_s=cluster.connect_timeout_s) as nodes:
        yield cluster, nodes
