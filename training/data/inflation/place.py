"""The folder of an inflated set: whose it is, who is at work in it, and what killed runs left there."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from training.data.errors import DataError
from training.data.files import is_leftover
from training.data.inflation.plan import PLAN_FILE
from training.data.manifest import MANIFEST_FILE
from training.data.names import is_passed_over
from training.data.shards import SHARDS_FOLDER

_PATIENCE_S = 10.0  # in which the workers of a killed process end
_RETRY_S = 0.1


def check_place(out: Path, source: Path, is_ours: bool) -> None:
    """Raises DataError where a set must not be made in `out`; `is_ours` says that a plan or manifest of the program is there."""
    if out == source or source.is_relative_to(out) or out.is_relative_to(source):
        raise DataError(f"{out}: must lie apart from its source {source}; give another --out")
    if out.exists() and not out.is_dir():
        raise DataError(f"{out}: is a file; give a folder as --out")
    if is_ours or not out.exists():
        return
    strange = sorted(path.name for path in out.iterdir() if not is_passed_over(path.name))
    if strange:
        raise DataError(
            f"{out}: holds {strange[0]}, and no {PLAN_FILE} or {MANIFEST_FILE} of this program, so it holds what this program "
            "did not write; give another --out, or empty the folder"
        )


@contextmanager
def at_work(out: Path, alone: bool) -> Iterator[None]:
    """Holds a lock on the folder while the block runs: alone, or with others that are not. Raises DataError.

    It ends with the last process that has it. Some network file systems have no locks on folders: there it is none.
    """
    folder = os.open(out, os.O_RDONLY)
    try:
        _lock(folder, fcntl.LOCK_EX if alone else fcntl.LOCK_SH, out)
        yield
    finally:
        os.close(folder)


def _lock(folder: int, kind: int, out: Path) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return fcntl.flock(folder, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                raise DataError(
                    f"{out}: another process is at work in it; wait until it has ended, or end it"
                ) from None
            time.sleep(_RETRY_S)
        except OSError:
            return None


def remove_leftovers(out: Path, label_folders: tuple[str, ...]) -> None:
    """Removes what killed runs left of files and folders beside their places, but in the folders of images."""
    below = [path for name in (*label_folders, SHARDS_FOLDER) for path in (out / name).rglob("*")]
    _remove_leftovers([*out.iterdir(), *below])


def remove_leftovers_in(folder: Path) -> None:
    """Removes what killed runs left in a folder that nobody else writes to now, not in those below it."""
    _remove_leftovers(folder.iterdir())


def _remove_leftovers(paths: Iterable[Path]) -> None:
    for path in paths:
        if is_leftover(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
