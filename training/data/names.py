"""What the name of a file in a data set tells."""

from __future__ import annotations

import re
from pathlib import Path

_IMAGE_ENDS = ("_leftImg8bit.png", "_leftImg8bit.jpg", "_leftImg8bit.jpeg")
_MASK_END = "_gtFine_labelIds.png"
# Of file systems: files that are still open, snapshots, what a check found. Of file servers and desktops: thumbnails, bins.
_FOREIGN_NAMES = {"lost+found", "Thumbs.db", "desktop.ini"}
_FOREIGN = re.compile(r"\.nfs[0-9a-f]+|[.~]snapshot|\.zfs|@eaDir|#recycle|\.DS_Store|\._.*|\.AppleDouble")


def is_image(path: str) -> bool:
    """Whether a file of a data set is an image, by its name."""
    return path.endswith(_IMAGE_ENDS)


def is_mask(path: str) -> bool:
    """Whether a file of a data set is a mask, by its name."""
    return path.endswith(_MASK_END)


def is_picture(path: str) -> bool:
    """Whether it is an image or a mask."""
    return is_image(path) or is_mask(path)


def is_taken(name: str) -> bool:
    """Whether a file of that name in a folder of the set is taken for one of its images or masks."""
    return is_picture(name) and not name.startswith(".")


def holds_pictures(path: Path) -> bool:
    """Whether what lies there is taken for an image or a mask of the set, or is a folder of some."""
    return any(is_taken(one.name) for one in (path, *path.rglob("*")))


def is_foreign(name: str) -> bool:
    """Whether file systems, file servers or desktops put files or folders of that name beside any others."""
    return name in _FOREIGN_NAMES or (name[0] in ".~@#" and _FOREIGN.fullmatch(name) is not None)
