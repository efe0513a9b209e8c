"""Whether torch.compile can work here. It needs Triton, and Triton a C compiler and Python's headers."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

import torch

_OLDEST = (7, 0)  # compute capability that Triton supports


def why_not(device: torch.device) -> str | None:
    """Why nothing can be compiled for this GPU on this machine, None where it can."""
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if not (os.environ.get("CC") or any(map(shutil.which, ("gcc", "clang", "cc")))):
        return "there is no C compiler"
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists():
        return f"there is no {headers}/Python.h (python3-dev has it)"
    if torch.cuda.get_device_capability(device) < _OLDEST:
        return f"{torch.cuda.get_device_name(device)} is older than Triton supports"
    return None
