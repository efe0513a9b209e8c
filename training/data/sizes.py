"""Sizes in words."""

from __future__ import annotations


def size_text(size_bytes: float) -> str:
    """`2.80 TB`, `31.5 GB`, `7.3 MB`."""
    if size_bytes >= 1e12:
        return f"{size_bytes / 1e12:.2f} TB"
    return f"{size_bytes / 1e9:.1f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"
