"""Samples what the node does while a gang runs, into `telemetry.jsonl`."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import psutil

from training.wire.schema import to_dict
from training.wire.telemetry import TelemetrySample


class Telemetry:
    """A context manager: samples every `interval_s` in a thread until it is left."""

    def __init__(self, path: Path, interval_s: float, gang: Callable[[], list[psutil.Process]]) -> None:
        self._path, self._interval_s, self._gang = path, interval_s, gang
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)
        self._read_bytes: dict[int, int] = {}

    def __enter__(self) -> Telemetry:
        psutil.cpu_percent()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        """Until it is told to stop, or the disk is full: the gang may well go on without."""
        try:
            self._sample_all()
        except OSError as error:
            print(f"telemetry ends: {error}", file=sys.stderr, flush=True)

    def _sample_all(self) -> None:
        gpus = Gpus()
        with self._path.open("a", encoding="utf-8") as out:
            last = time.monotonic()
            while not self._stop.wait(self._interval_s):
                now = time.monotonic()
                out.write(json.dumps(to_dict(self._sample(now - last, gpus))) + "\n")
                out.flush()
                last = now

    def _sample(self, interval_s: float, gpus: Gpus) -> TelemetrySample:
        processes = self._gang()
        for process in processes:
            self._note_read_bytes(process)
        return TelemetrySample(
            t_wall_s=time.time(),
            interval_s=interval_s,
            cpu_util=psutil.cpu_percent() / 100,
            memory_available_bytes=psutil.virtual_memory().available,
            network_received_bytes=psutil.net_io_counters().bytes_recv,
            nfs_read_bytes=nfs_read_bytes(),
            gang_read_bytes=sum(self._read_bytes.values()),
            gang_processes=len(processes),
            gpu_util=gpus.utilisation(),
            gpu_memory_bytes=gpus.memory_bytes(),
        )

    def _note_read_bytes(self, process: psutil.Process) -> None:
        try:
            self._read_bytes[process.pid] = process.io_counters().read_bytes
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return


class Gpus:
    """The node's GPUs through NVML; on a node without any, every value is null."""

    def __init__(self) -> None:
        self._handles: list[object] = []
        try:
            import pynvml

            pynvml.nvmlInit()
        except (ImportError, OSError):
            return
        except pynvml.NVMLError:
            return
        self._nvml = pynvml
        self._handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]

    def utilisation(self) -> list[float] | None:
        if not self._handles:
            return None
        return [self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100 for handle in self._handles]

    def memory_bytes(self) -> list[int] | None:
        if not self._handles:
            return None
        return [self._nvml.nvmlDeviceGetMemoryInfo(handle).used for handle in self._handles]


def nfs_read_bytes() -> int | None:
    """Bytes that all NFS mounts of this node have read from their servers, null where there is none.

    The fifth number of a mount's `bytes:` line in /proc/self/mountstats (Linux, fs/nfs/iostat.h: NFSIOS_SERVERREADBYTES).
    """
    try:
        lines = Path("/proc/self/mountstats").read_text().splitlines()
    except OSError:
        return None
    counts = [int(line.split()[5]) for line in lines if line.strip().startswith("bytes:")]
    return sum(counts) if counts else None
