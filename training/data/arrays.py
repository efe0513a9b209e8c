"""Arrays as files that are written whole to the disk and mapped, not read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np


def save_array(path: Path, array: np.ndarray) -> None:
    """Like np.save, whose error of a full disk does not say that it is one."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(array))
        file.write(array.data)
        file.flush()
        os.fsync(file.fileno())


def map_array(path: Path) -> Any:
    """The array in a file, read-only and shared by all processes that map it; None where it holds something else."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.asarray(array) if isinstance(array, np.memmap) else None
