"""Files and folders that are whole or absent, and never half."""

from __future__ import annotations

import os
import re
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.data.errors import DataError

LOOKUPS_AT_ONCE = 16  # a NAS answers one lookup in a fraction of a millisecond, and many at once

_LEFTOVER = re.compile(r"\..+\.(partial|old)(\.[^.]+)?")


def make_folder(path: Path) -> None:
    """Makes an output folder, with those above it. Raises DataError."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        file = next(part for part in (path, *path.parents) if os.path.lexists(part))
        raise DataError(f"{file}: is a file where a folder belongs; move it away") from error
    except OSError as error:
        raise DataError(
            f"{path}: cannot be made ({error.strerror}); give an --out where folders can be made"
        ) from error


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A hidden path beside `path`, with its suffix, to write to; it becomes `path` when the block ends well."""
    partial = path.with_name(f".{path.stem}.{os.getpid()}.partial{path.suffix}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, content: bytes | bytearray | memoryview) -> None:
    """Makes a file of this content on the disk, that is there whole or not at all. Raises DataError, OSError."""
    try:
        with atomic(path) as partial, partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except IsADirectoryError as error:
        raise DataError(f"{path}: is a folder where a file belongs; move it away") from error


def is_leftover(name: str) -> bool:
    """Whether a name is one that `atomic` or `building` gives to what is not finished."""
    return bool(_LEFTOVER.fullmatch(name))


def remove_partial_files(folder: Path) -> None:
    """Removes what killed runs left of `atomic` and `write_json` below a folder."""
    for partial in folder.rglob(".*.partial*"):
        partial.unlink(missing_ok=True)


def placement(sources: list[Path], folder: Path, out: Path, what: str) -> str:
    """How files come into a folder, in words: hard-linked, or copied where there is room.

    `out` is what the folder becomes, `what` the name for the files. Raises DataError.
    """
    if _can_link(sources[0], folder):
        return f"{what} are hard-linked and take no further space"
    need_bytes, free_bytes = sum(source.stat().st_size for source in sources), shutil.disk_usage(folder).free
    if need_bytes > free_bytes:
        raise DataError(
            f"{out}: {free_bytes / 1e6:.0f} MB free, but the {what} to copy take {need_bytes / 1e6:.0f} MB; "
            "make room, or give an --out on the file system of the source, where they are hard-linked"
        )
    return f"{what} are copied, {need_bytes / 1e6:.0f} MB of {free_bytes / 1e6:.0f} MB free"


def _can_link(source: Path, folder: Path) -> bool:
    """Into a folder of the same file system, and one that has hard links."""
    probe = folder / ".probe"
    try:
        os.link(source.resolve(), probe)
    except OSError:
        return False
    probe.unlink()
    return True


def link_or_copy(source: Path, target: Path) -> None:
    """A hard link where that can be, else a copy. Symbolic links are followed first: link(2) does not."""
    source = source.resolve()
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:
        shutil.copyfile(source, target)


@contextmanager
def building(out: Path) -> Iterator[Path]:
    """A new folder beside `out` to build in. When the block ends well it takes the place of `out`, which is removed.

    What runs of this machine that are gone left beside `out` is removed first.
    """
    make_folder(out.parent)
    _remove_leftovers(out)
    partial, old = _beside(out, "partial"), _beside(out, "old")
    make_folder(partial)
    try:
        yield partial
        if out.exists():
            out.rename(old)
        partial.rename(out)
    except BaseException:
        if old.exists() and not out.exists():
            old.rename(out)
        shutil.rmtree(partial, ignore_errors=True)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _beside(out: Path, kind: str) -> Path:
    return out.with_name(f".{out.name}.{socket.gethostname()}.{os.getpid()}.{kind}")


def _remove_leftovers(out: Path) -> None:
    pattern = re.compile(rf"\.{re.escape(out.name)}\.{re.escape(socket.gethostname())}\.(\d+)\.(partial|old)")
    for path in out.parent.iterdir():
        match = pattern.fullmatch(path.name)
        if match and not _runs(int(match[1])):
            shutil.rmtree(path, ignore_errors=True)


def _runs(pid: int) -> bool:
    """Whether another process has this id. Our own id on a leftover is an earlier process's (containers reuse ids)."""
    return pid != os.getpid() and Path(f"/proc/{pid}").exists()
