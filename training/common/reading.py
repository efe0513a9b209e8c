"""Whole files read ahead by threads, so that storage is asked for many files at once while earlier ones are decoded."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from training.common.errors import UserError

Content = NDArray[np.uint8]
Reads = list[Future[list[Content]]]


class FileReader:
    """Reads up to `at_once` files at a time, in the order asked for."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="read")

    def start(self, paths: Sequence[Path]) -> Reads:
        """The files' bytes in the order of `paths`, a few files in each result; results raise UserError."""
        few = max(1, len(paths) // self._at_once)  # to hand over each by itself costs as much as to read a small one
        return [self._threads.submit(_read_files, paths[first : first + few]) for first in range(0, len(paths), few)]

    def close(self) -> None:
        """Gives up what is not being read yet."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def contents(reads: Reads) -> list[Content]:
    """Waits for them. Raises UserError."""
    return [content for read in reads for content in read.result()]


def read_file(path: Path) -> Content:
    """The bytes of a file. Raises UserError naming it if it cannot be read or is empty."""
    try:
        # what a file object does beside costs as much as a small read
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            content = np.empty(os.fstat(descriptor).st_size, dtype=np.uint8)
            read = 0
            while read < len(content) and (count := os.readv(descriptor, [content[read:]])):
                read += count
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    if read < len(content):
        raise UserError(f"cannot read {path}: it became shorter while it was read")
    if not len(content):
        raise UserError(f"{path} is empty; put the image back, or take it out of the data set")
    return content


def _read_files(paths: Sequence[Path]) -> list[Content]:
    return [read_file(path) for path in paths]


def undecodable(path: Path, reason: Exception) -> UserError:
    """What a user is told of a file that is no image."""
    said = " ".join(str(reason).split())
    return UserError(f"{path} cannot be decoded ({said}); put the image back, or take it out of the data set")
