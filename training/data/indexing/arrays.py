"""Arrays as files that are written whole to the disk and mapped, not read."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike

_COPIED_BYTES = 1 << 20


class ArrayWriter:
    """Writes an array of `columns` in pieces along its first axis, so that it is never whole in memory.

    As a context manager it makes the file whole when the block ends well.
    """

    def __init__(self, path: Path, dtype: DTypeLike, columns: tuple[int, ...] = ()) -> None:
        self.rows = 0
        self._dtype, self._columns = np.dtype(dtype), columns
        self._file = path.open("wb")
        self._write_header()

    def append(self, array: np.ndarray) -> None:
        """Adds (k, *columns), of the same kind. Raises OSError, which numpy's own writer hides where a disk is full."""
        if len(array):
            self._file.write(np.ascontiguousarray(array, self._dtype).data)
            self.rows += len(array)

    def copy(self, file: BinaryIO, rows: int) -> None:
        """Adds the rows whose bytes are the rest of a file. Raises OSError."""
        shutil.copyfileobj(file, self._file, _COPIED_BYTES)
        self.rows += rows

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file:
            if kind is None:
                self._file.seek(0)
                self._write_header()
                self._file.flush()
                os.fsync(self._file.fileno())

    def _write_header(self) -> None:
        """Of the same length for any number of rows: numpy leaves room for them to become more."""
        shape = (self.rows, *self._columns)
        header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)


def save_array(path: Path, array: np.ndarray) -> None:
    """Like np.save, whose error of a full disk does not say that it is one."""
    with ArrayWriter(path, array.dtype, array.shape[1:]) as writer:
        writer.append(array)


def map_array(path: Path) -> Any:
    """The array in a file, read-only and shared by all processes that map it; None where it holds something else."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    return np.asarray(array) if isinstance(array, np.memmap) else None
