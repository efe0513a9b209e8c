"""A cluster of real SSH hosts for the tests, with keys, ports and homes of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

import psutil

from scaleout import settings
from scaleout.config.cluster import Cluster
from scaleout.local.cluster import LocalCluster
from scaleout.local.hosts import Host
from scaleout.remote.fleet import connected
from scaleout.remote.node import Node
from scaleout.remote.target import Target, target_from_file

PATIENCE_S = 20.0


@dataclass(frozen=True)
class PrivateCluster:
    """A local cluster that is up, or was."""

    local: LocalCluster

    @property
    def connections(self) -> Path:
        return self.local.folder / "connections.json"

    def host(self, name: str) -> Host:
        return self.local.hosts()[f"private_{name}"]

    def home(self, name: str) -> Path:
        return self.host(name).home

    def target(self, name: str) -> Target:
        return target_from_file(self.connections, f"private_{name}", name)

    def connected(self, *names: str) -> AbstractAsyncContextManager[list[Node]]:
        return connected([self.target(name) for name in names], python="python3", timeout_s=PATIENCE_S)

    def cut_sessions(self, name: str) -> None:
        """Kills the processes that serve a host's connections, not what they started."""
        daemon = self.host(name).daemon()
        assert daemon is not None
        for session in daemon.children():
            session.kill()

    def stop_daemon(self, name: str) -> None:
        """Kills a host's daemon and the processes that serve its connections, not what they started."""
        daemon = self.host(name).daemon()
        assert daemon is not None
        sessions = daemon.children()
        for process in (daemon, *sessions):
            process.kill()


def make(folder: Path, nodes: Sequence[str]) -> PrivateCluster:
    """A cluster of these nodes and a stand-in array of four, not yet up."""
    config = {
        "name": "private",
        "nodes": [{"name": name, "connection": f"private_{name}"} for name in nodes],
        "cityscapes": "~/nas/cityscapes",
        "prepared": "~/nas/prepared",
        "device": "cpu",
        "processes_per_node": 1,
        "array": {"kind": "onefs", "connection": "private_array", "nodes": 4},
    }
    cluster = Cluster.model_validate(config)
    return PrivateCluster(LocalCluster(cluster, folder / "hosts", folder / "nas", settings.node_python()))


def carrying(run_id: str) -> list[psutil.Process]:
    """This machine's processes of a run, found by other means than the project's own."""
    return with_variable(f"SCALEOUT_RUN_ID={run_id}".encode())


def with_variable(mark: bytes) -> list[psutil.Process]:
    """This machine's processes with `name=value` in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if mark in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                found.append(process)
        except OSError:
            continue
    return found


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
