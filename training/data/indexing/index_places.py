"""Where the index of an annotation file lies: beside it, or in this node's cache."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from training.data.errors import FULL, DataError

_TAKES = "about a quarter of that file's size"


def index_folder(json_path: Path) -> Path:
    """`annotations/instances_train2017.index`: the folder beside an annotation file."""
    return json_path.with_suffix(".index")


@contextmanager
def cache_entry(json_path: Path, say: Callable[[str], None]) -> Iterator[Path]:
    """The folder of an annotation file in the node's cache, for this process alone until the block ends.

    It lies below the first of these that can be written: SCALEOUT_CACHE_DIR, else XDG_CACHE_HOME/scaleout, else
    ~/.cache/scaleout; the temporary folder's scaleout-UID, which must be this user's alone. Raises DataError.
    """
    name = hashlib.sha256(os.fsencode(json_path.absolute())).hexdigest()[:32]
    entry, lock = _locked(json_path, name, say)
    try:
        yield entry
    finally:
        os.close(lock)


@contextmanager
def room_needed(folder: Path, json_path: Path, takes: str = _TAKES) -> Iterator[None]:
    """Turns an OSError of writing an index into `folder` into a DataError that says what to do."""
    try:
        yield
    except OSError as error:
        raise _unwritable(folder, json_path, error, takes) from error
    except DataError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL:
            raise _unwritable(folder, json_path, error.__cause__, takes) from error
        raise


def _locked(json_path: Path, name: str, say: Callable[[str], None]) -> tuple[Path, int]:
    reasons = []
    for find in (_configured, _private_temporary):
        try:
            entry = find() / name
            entry.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(entry / "lock", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                _lock(lock, lambda: say(f"waiting for another process of this node that prepares {json_path}"))
            except BaseException:
                os.close(lock)
                raise
        except (OSError, RuntimeError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise _unwritable(error.filename or "its lock", json_path, error) from error
            reasons.append(
                f"{error.filename or 'its lock'}: {error.strerror}" if isinstance(error, OSError) else str(error)
            )
        else:
            if reasons:
                say(f"{reasons[0]}; the index of {json_path.name} goes to {entry}")
            return entry, lock
    raise DataError(
        f"no folder can be written for the index of {json_path} ({'; '.join(reasons)}); "
        "set SCALEOUT_CACHE_DIR to a folder on a local disk"
    )


def _lock(lock: int, waiting: Callable[[], None]) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        waiting()
        fcntl.flock(lock, fcntl.LOCK_EX)


def _configured() -> Path:
    if folder := os.environ.get("SCALEOUT_CACHE_DIR"):
        return Path(folder).absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".cache") / "scaleout"


def _private_temporary() -> Path:
    folder = Path(tempfile.gettempdir()) / f"scaleout-{os.geteuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "is not this user's alone", str(folder))
    return folder


def _unwritable(folder: Path | str, json_path: Path, error: OSError, takes: str = _TAKES) -> DataError:
    what = "its disk is full" if error.errno in FULL else error.strerror
    return DataError(
        f"{folder}: cannot write the index of {json_path} ({what}); it takes {takes}: "
        "make room, or set SCALEOUT_CACHE_DIR to a folder that has it"
    )
