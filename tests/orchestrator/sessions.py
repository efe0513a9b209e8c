"""The session of a sweep on node1 and node2 of the private cluster."""

from __future__ import annotations

from typing import Any

from private_cluster import PATIENCE_S, PrivateCluster

from scaleout.config.cluster import Cluster
from scaleout.plan.resolve import resolve
from scaleout.remote.target import target_from_file
from scaleout.results.store import SweepStore
from scaleout.steps.session import Session

NODES = ["node1", "node2"]


def session_on(
    hosts: PrivateCluster,
    run_id: str,
    release: str,
    conf: dict[str, Any],
    said: list[str],
    *,
    lease_s: float = 20,
    **changes: Any,
) -> Session:
    """With its plan in the results folder; `said` gets every line of its log, `changes` are of the cluster."""
    config = hosts.local.cluster.model_dump(mode="json") | {
        "nodes": [{"name": name, "connection": f"private_{name}"} for name in NODES],
        "network_interface": "lo", "grace_s": 1, "connect_timeout_s": PATIENCE_S, "node_patience_s": 5, **changes,
    }  # fmt: skip
    config["array"] |= {"settle_s": 0}
    store = SweepStore(run_id)
    store.create(
        resolve(run_id=run_id, conf=conf, cluster=Cluster.model_validate(config), created_at="now", lease_s=lease_s)
    )
    names = {f"private_{name}": name for name in [*NODES, "array"]}
    targets = {connection: target_from_file(hosts.connections, connection, name) for connection, name in names.items()}
    return Session(store, store.update(release=release), targets, lambda text: said.extend(text.splitlines()))
