"""Whether torch.compile can work here. On a GPU it needs Triton, Triton a C compiler and Python's headers; on the CPU C++'s."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path

import torch

from training.common.args import NOT_COMPILED
from training.common.errors import UserError

_OLDEST = (7, 0)  # compute capability that Triton supports


def asked_mode(asked: str | None, device: torch.device) -> str | None:
    """The mode that a user wants the step compiled in; None where none was asked for. Raises UserError where it cannot be."""
    if asked in (None, NOT_COMPILED):
        return None
    if problem := why_not(device):
        raise UserError(f"--compile {asked}: {problem}; install it, or give --no-compile")
    return asked


def why_not(device: torch.device) -> str | None:
    """Why nothing can be compiled for this device on this machine, None where it can."""
    is_gpu = device.type == "cuda"
    if is_gpu and importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    variable, names = ("CC", ("gcc", "clang", "cc")) if is_gpu else ("CXX", ("g++",))
    if not (os.environ.get(variable) or any(map(shutil.which, names))):
        return f"there is no {'C' if is_gpu else 'C++'} compiler"
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").exists():
        return f"there is no {headers}/Python.h (python3-dev has it)"
    if is_gpu and torch.cuda.get_device_capability(device) < _OLDEST:
        return f"{torch.cuda.get_device_name(device)} is older than Triton supports"
    return None
