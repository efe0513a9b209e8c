"""The array that a cluster's file names."""

from __future__ import annotations

from scaleout.array.base import NasArray
from scaleout.array.command import AnyCommandArray
from scaleout.array.none import NoNasArray
from scaleout.array.onefs import OneFSArray
from scaleout.config.cluster import Cluster, CommandArray, OneFS
from scaleout.remote.target import Target


def array_connection(cluster: Cluster) -> str | None:
    """The name of the connection that leads to the cluster's array, if it has one."""
    return None if cluster.array.kind == "none" else cluster.array.connection


def array_of(cluster: Cluster, target: Target | None) -> NasArray:
    """`target` is where `array_connection` leads."""
    config = cluster.array
    if isinstance(config, OneFS) and target:
        return OneFSArray(config, target, cluster.connect_timeout_s)
    if isinstance(config, CommandArray) and target:
        return AnyCommandArray(config, target, cluster.connect_timeout_s)
    return NoNasArray()
