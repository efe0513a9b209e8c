"""What a result needs to be traced: versions, machine, device, affinity."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
from pathlib import Path
from typing import Any

import torch

from training.common.gang import Gang, boot_id
from training.wire.job import NODE_VARIABLE, RUN_ID_VARIABLE
from training.wire.release import content_hash

_PACKAGES = {"torchvision": "torchvision", "numpy": "numpy", "pillow": "pillow"}
_DALI_PACKAGES = ("nvidia-dali-cuda120", "nvidia-dali-cuda130")


def node_name() -> str:
    """The node's name in the cluster file, else the host's."""
    return os.environ.get(NODE_VARIABLE) or socket.gethostname()


def device_name(device: torch.device) -> str:
    """`NVIDIA A100-SXM4-40GB`, or the CPU's model name."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def gpu_index(device: torch.device) -> int | None:
    """The device's number in nvidia-smi, whatever CUDA_VISIBLE_DEVICES shows. None on CPU and where NVML does not tell."""
    if device.type != "cuda":
        return None
    import pynvml

    pynvml.nvmlInit()
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
        return int(pynvml.nvmlDeviceGetIndex(handle))
    except pynvml.NVMLError:  # a part of a GPU (MIG) has a name of its own
        return None
    finally:
        pynvml.nvmlShutdown()


def network_interface() -> str | None:
    """The interface that NCCL or gloo was told to use, None where it chose itself."""
    told = os.environ.get("NCCL_SOCKET_IFNAME") or os.environ.get("GLOO_SOCKET_IFNAME") or ""
    return told.removeprefix("=") or None


def affinity() -> list[int]:
    """The CPUs that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def useful_workers(asked: int, device: torch.device) -> int:
    """On CPU a loader's workers share the cores with the model, so more than there are only get in its way."""
    return asked if device.type == "cuda" else min(asked, len(affinity()))


def versions(device: torch.device) -> dict[str, str]:
    """Software that a number depends on, and `release`: the content hash of the `training` folder that runs."""
    found = {
        "release": content_hash(Path(__file__).resolve().parents[1]),
        "python": platform.python_version(),
        "kernel": platform.release(),
        "torch": torch.__version__,
    }
    for name, package in _PACKAGES.items():
        found |= _version(name, package)
    for package in _DALI_PACKAGES:
        found |= _version("dali", package)
    if device.type == "cuda":
        import pynvml

        pynvml.nvmlInit()
        found["driver"] = pynvml.nvmlSystemGetDriverVersion()
        pynvml.nvmlShutdown()
        found["cuda"] = str(torch.version.cuda)
        found["cudnn"] = str(torch.backends.cudnn.version())
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    return found


def place(gang: Gang, ddp: str) -> dict[str, Any]:
    """The fields of RunStart that say where this rank runs and on what, the same for every program."""
    return {
        "run_id": os.environ.get(RUN_ID_VARIABLE),
        "node": node_name(),
        "hostname": socket.gethostname(),
        "boot_id": boot_id(),
        "pid": os.getpid(),
        "node_rank": gang.node_rank,
        "local_rank": gang.local_rank,
        "world_size": gang.world_size,
        "device": str(gang.device),
        "device_name": device_name(gang.device),
        "gpu_index": gpu_index(gang.device),
        "backend": gang.backend,
        "affinity": affinity(),
        "network_interface": network_interface(),
        "versions": versions(gang.device) | (_version("apex", "apex") if ddp == "apex" else {}),
    }


def _version(name: str, package: str) -> dict[str, str]:
    try:
        return {name: importlib.metadata.version(package)}
    except importlib.metadata.PackageNotFoundError:
        return {}
