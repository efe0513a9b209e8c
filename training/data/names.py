"""What the name of a file tells, whether JSON can hold it, and how it is shown."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from training.data.errors import DataError

IMAGE_ENDS = ("_leftImg8bit.png", "_leftImg8bit.jpg", "_leftImg8bit.jpeg")
MASK_END = "_gtFine_labelIds.png"
# Of file systems: files that are still open, snapshots, what a check found. Of file servers and desktops: thumbnails, bins.
_FOREIGN_NAMES = {"lost+found", "Thumbs.db", "desktop.ini"}
_FOREIGN = re.compile(r"\.nfs[0-9a-f]+|[.~]snapshot|\.zfs|@eaDir|#recycle|\.DS_Store|\._.*|\.AppleDouble")


def is_image(path: str) -> bool:
    """Whether a file of a data set is an image, by its name."""
    return path.endswith(IMAGE_ENDS)


def is_mask(path: str) -> bool:
    """Whether a file of a data set is a mask, by its name."""
    return path.endswith(MASK_END)


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


def is_passed_over(name: str) -> bool:
    """Whether a file or folder of that name, foreign or hidden, does not count where strange ones are looked for."""
    return name.startswith(".") or is_foreign(name)


def is_utf8(path: Path) -> bool:
    """Whether JSON can hold a path. Raises DataError where Python, going by the locale, reads names as something else."""
    name = str(path)
    if name.isascii():
        return True
    if sys.getfilesystemencoding() != "utf-8":
        raise DataError(f"{path}: a name beyond ASCII, and this locale is not one of UTF-8; set LC_ALL=C.UTF-8")
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def shown(text: str) -> str:
    """The text on one line: what does not print is escaped, such as a line break in a name, or bytes that are not UTF-8."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)
