"""Keeps freed memory for the next frame: getting it anew from the kernel can cost as much as converting a frame."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt(3)
_KEPT_BYTES = 256 << 20
_LARGEST_BYTES = 32 << 20  # the most that glibc takes


def keep_freed_memory() -> None:
    """For this process and those that it forks; without effect where the C library has no mallopt (musl)."""
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_BYTES)
