"""What every step works with: the sweep's folder, the way to its nodes, and somewhere to say what happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from scaleout.plan.sweep import Sweep
from scaleout.remote import lock
from scaleout.remote.fleet import connected
from scaleout.remote.node import Node
from scaleout.remote.target import Target
from scaleout.results.store import SweepStore


@dataclass(frozen=True)
class Session:
    """One step of one sweep. `targets` are by connection name; `say` takes a line for the task's log."""

    store: SweepStore
    sweep: Sweep
    targets: Mapping[str, Target]
    say: Callable[[str], None]

    @property
    def claim(self) -> lock.Claim:
        return lock.Claim.of(self.sweep.run_id, self.sweep.lock_ttl_s)

    @property
    def node_names(self) -> list[str]:
        """The nodes that the sweep uses: those of its largest trial."""
        return max((trial.node_names for trial in self.sweep.trials), key=len)

    def hear(self, node: str, line: str) -> None:
        """Says a line of a node's."""
        self.say(f"[{node}] {line}")

    @asynccontextmanager
    async def connected(self, names: Sequence[str]) -> AsyncIterator[list[Node]]:
        """Connections to the named nodes, all or none."""
        cluster = self.sweep.cluster
        by_name = {node.name: self.targets[node.connection] for node in cluster.nodes}
        wanted = [by_name[name] for name in names]
        async with connected(wanted, python=cluster.python, timeout_s=cluster.connect_timeout_s) as nodes:
            yield nodes

    @asynccontextmanager
    async def holding(self, names: Sequence[str]) -> AsyncIterator[list[Node]]:
        """The same, with the cluster lock checked and kept alive meanwhile."""
        async with self.connected(names) as nodes, lock.renewed(nodes, self.sweep.cluster.remote_root, self.claim):
            yield nodes
