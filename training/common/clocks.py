"""Clocks and counters: bytes fetched from storage, memory, and the GPU's idle time between steps."""

from __future__ import annotations

import psutil
import torch


def read_bytes() -> int | None:
    """Bytes that this process has fetched from storage so far (proc(5), io: read_bytes), None where not readable.

    Reads that the page cache answers are not in it; what an NFS client fetches is.
    """
    try:
        with open("/proc/self/io", encoding="ascii") as counters:
            return next(int(line.split()[1]) for line in counters if line.startswith("read_bytes:"))
    except OSError:
        return None


def host_memory_bytes() -> int:
    """Resident memory of this process."""
    return psutil.Process().memory_info().rss


def gpu_memory_bytes(device: torch.device) -> int | None:
    """The peak of what torch allocated on the device since `forget_peak`, None on CPU."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def forget_peak(device: torch.device) -> None:
    """To be called after the warm-up, in which cuDNN tries algorithms that want far more than training does."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


class GpuIdle:
    """Time between steps on the GPU's own clock: from the end of a step's work to the start of the next one's.

    A host that is ahead of the GPU leaves no gap however long it waits; that is why host wait is not GPU idle time.
    """

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks: list[torch.cuda.Event] = []

    def mark(self) -> None:
        """To be called where a window opens, and before and after each step."""
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)

    def take_s(self) -> float | None:
        """Seconds of gaps since the window opened, None on CPU. The device must have been synchronised."""
        if not self._on_gpu:
            return None
        gaps = zip(self._marks[0::2], self._marks[1::2], strict=False)
        idle_s = sum(end.elapsed_time(start) for end, start in gaps) / 1000
        self._marks.clear()
        return idle_s
