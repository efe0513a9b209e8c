"""The error of a user's data, and how a program of this room ends."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from training.common.errors import UserError, one_line


class DataError(UserError):
    """A folder, file or option that cannot be used. The message says what is wrong, where, and what to do."""


def exit_status(program: Callable[[], None]) -> int:
    """Runs a program: 0, or 2 with one sentence on stderr for a user's mistake, or 130 when interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names of files can be any bytes
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        program()
    except UserError as error:
        return _say(one_line(error), error.exit_status)
    except OSError as error:
        if error.errno is None:
            raise
        where = error.filename2 or error.filename or "writing a file"
        return _say(f"{where}: {error.strerror}; check the path, its permissions and the free space", 2)
    except KeyboardInterrupt:
        return _say("interrupted; run the same command again", 130)
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Ends the program as Ctrl-C does, and lets no further one disturb it while it cleans up."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(sentence: str, status: int) -> int:
    print(f"error: {sentence}", file=sys.stderr, flush=True)
    return status
