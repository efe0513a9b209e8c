"""The two ways in which a run ends badly without a bug of ours: one sentence for the user, no traceback."""

from __future__ import annotations

import sys
from typing import NoReturn


class TrainingError(Exception):
    """The training itself went wrong (a loss that is not finite). Exit status 1."""

    exit_status = 1


class UserError(TrainingError):
    """What the user gave cannot work: a flag, a folder, a file. Exit status 2."""

    exit_status = 2


def fail(error: TrainingError) -> NoReturn:
    """Says what went wrong in one line on stderr and ends the process with the error's status."""
    print(f"error: {one_line(error)}", file=sys.stderr, flush=True)
    sys.exit(error.exit_status)


def one_line(error: BaseException) -> str:
    """The error as one line: its message, with the type in front unless it is a sentence of ours."""
    text = " ".join(str(error).split())
    return text if isinstance(error, TrainingError) else f"{type(error).__name__}: {text}"
