"""What this node is: its environment, hardware, disks, clock and mounts. Changes nothing.

Usage: preflight.py ROOT SOURCE DATA    prints one JSON object

ROOT is the remote root, SOURCE the Cityscapes folder, DATA the folder that the trials read (it may not exist yet).
"""

import importlib.metadata
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import time

PACKAGES = (
    "torch",
    "torchvision",
    "nvidia-dali-cuda120",
    "nvidia-dali-cuda130",
    "cityscapesscripts",
    "pycocotools",
    "msgspec",
    "numpy",
    "psutil",
    "pillow",
    "deflate",
    "zlib-ng",
)


def versions():
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def first_line(path):
    try:
        with open(path) as lines:
            return lines.readline().strip()
    except OSError:
        return None


def cpu_model():
    with open("/proc/cpuinfo") as lines:
        return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), None)


def memory_bytes():
    with open("/proc/meminfo") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal"))


def gpus():
    """[{"name", "driver"}…] by nvidia-smi, empty where there is none."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [
        dict(zip(("name", "driver"), line.split(", "), strict=False))
        for line in done.stdout.splitlines()
        if line.strip()
    ]


def unescaped(field):
    """A field of /proc/self/mounts, where blanks and backslashes are octal numbers."""
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8)]), field))


def mount_of(path):
    """The mount that holds `path` (or its nearest existing parent): {"source", "point", "type", "options"}."""
    real = os.path.realpath(path)
    best = None
    with open("/proc/self/mounts", "rb") as lines:
        for line in lines:
            source, point, kind, options = map(unescaped, line.split(b" ")[:4])
            inside = real == point or real.startswith(point.rstrip("/") + "/")
            if inside and (best is None or len(point) >= len(best["point"])):
                best = {"source": source, "point": point, "type": kind, "options": options}
    return best


def existing_parent(path):
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def main():
    root, source, data = sys.argv[1:4]
    print(
        json.dumps(
            {
                "hostname": socket.gethostname(),
                "boot_id": first_line("/proc/sys/kernel/random/boot_id"),
                "kernel": platform.release(),
                "python": platform.python_version(),
                "executable": sys.executable,
                "versions": versions(),
                "cpus": len(os.sched_getaffinity(0)),
                "cpu_model": cpu_model(),
                "memory_bytes": memory_bytes(),
                "gpus": gpus(),
                "uid": os.geteuid(),
                "can_drop_caches": os.access("/proc/sys/vm/drop_caches", os.W_OK),
                "root_free_bytes": shutil.disk_usage(existing_parent(root)).free,
                "source_exists": os.path.isdir(source),
                "data_mount": mount_of(data),
                "shm_bytes": shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else None,
                "wall_s": time.time(),
            }
        )
    )


if __name__ == "__main__":
    main()
