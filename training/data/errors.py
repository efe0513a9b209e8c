"""The error of a user's data, and how a program of this room ends."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from training.common.errors import UserError, one_line

FULL = (errno.ENOSPC, errno.EDQUOT)

_STDOUT = "standard output"
_interrupted = False


class DataError(UserError):
    """A folder, file or option that cannot be used. The message says what is wrong, where, and what to do."""


def exit_status(program: Callable[[], None]) -> int:
    """Runs a program: 0, or 2 with one sentence on stderr for a user's mistake, or 130 when interrupted.

    141, as a shell has it, when nothing reads its standard output any more.
    """
    _name_stdout()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        program()
        if sys.stdout:
            sys.stdout.flush()
    except UserError as error:
        return _say(one_line(error), error.exit_status)
    except OSError as error:
        if error.errno is None:
            raise
        if error.filename == _STDOUT:
            return _without_stdout(error)
        where = error.filename2 or error.filename or "writing a file"
        return _say(f"{where}: {error.strerror}; check the path, its permissions and the free space", 2)
    except BaseException as error:
        # What it meets inside of numpy, being imported, becomes an ImportError there.
        if isinstance(error, KeyboardInterrupt) or _interrupted:
            return _say("interrupted; run the same command again", 130)
        raise
    return 0


@contextmanager
def room_needed_in(out: Path) -> Iterator[None]:
    """Turns an OSError of a full file system or quota into a DataError that says so of `out`."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL or error.filename == _STDOUT:
            raise
        raise DataError(f"{out}: {error.strerror}; make room there, or give another --out") from error


class _StandardOutput(io.FileIO):
    """Puts its name into the OSError of what cannot be written, as that of a file has one."""

    def write(self, content: bytes | memoryview) -> int:
        try:
            return super().write(content)
        except OSError as error:
            error.filename = _STDOUT
            raise


def _name_stdout() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        buffer = io.BufferedWriter(_StandardOutput(sys.stdout.fileno(), "w", closefd=False))
        # Names of files can be any bytes.
        sys.stdout = io.TextIOWrapper(
            buffer,
            sys.stdout.encoding,
            "backslashreplace",
            line_buffering=sys.stdout.line_buffering or sys.stdout.write_through,
        )


def _without_stdout(error: OSError) -> int:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what Python writes when it ends
    if error.errno == errno.EPIPE:
        return 128 + signal.SIGPIPE
    return _say(f"{_STDOUT}: {error.strerror}; run the same command again with another place for it", 2)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ends the program as Ctrl-C does, and lets no further one disturb it while it cleans up."""
    global _interrupted
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _interrupted = True
    raise KeyboardInterrupt


def _say(sentence: str, status: int) -> int:
    print(f"error: {sentence}", file=sys.stderr, flush=True)
    return status
