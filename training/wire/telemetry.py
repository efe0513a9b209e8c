"""One line of `telemetry.jsonl`: what a node was doing in the interval that ends at `t_wall_s`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TelemetrySample:
    """Utilisations are fractions of 1 over the interval. A value that the node cannot give is null.

    `gang_read_bytes` is cumulative: what the processes of the gang caused to be fetched from storage so far
    (`read_bytes` of /proc/PID/io, see proc(5); NFS is counted in `nfs_read_bytes`, from /proc/self/mountstats).
    """

    t_wall_s: float
    interval_s: float
    cpu_util: float | None
    memory_available_bytes: int | None
    network_received_bytes: int | None
    nfs_read_bytes: int | None
    gang_read_bytes: int | None
    gang_processes: int
    gpu_util: list[float] | None
    gpu_memory_bytes: list[int] | None
