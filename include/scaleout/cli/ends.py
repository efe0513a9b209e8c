"""How a command of ours ends: what a user can do something about is a sentence, and no traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from scaleout.errors import STOPPED, ScaleoutError


def run_in_words(command: Callable[[], object]) -> None:
    """Runs it; an error becomes a sentence on standard error and an exit status.

    A file or folder that the operating system refuses is the user's to mend; any other OSError is a fault of ours.
    """
    try:
        command()
    except ScaleoutError as error:
        _end(str(error), error.exit_code)
    except OSError as error:
        if error.filename is None:
            raise
        _end(f"{error.filename}: {error.strerror}", 1)
    except KeyboardInterrupt:
        sys.exit(STOPPED)


def _end(sentence: str, status: int) -> None:
    typer.echo(f"scaleout: {sentence}", err=True)
    sys.exit(status)
