"""What the kernel tells of a process, in /proc. Each function raises OSError for one that is gone, or not ours to look at."""

from __future__ import annotations

from pathlib import Path


def stat_fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third, the state, on; the last is the exit code, as waitpid reports it."""
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()


def environment_of(pid: int) -> dict[bytes, bytes]:
    """What it was started with."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)


def boot_id() -> str:
    """Of this boot of the machine."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
