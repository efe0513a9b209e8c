"""The frame of a training program: its event log, its last event and its exit status."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from torch.distributed.elastic.multiprocessing.errors import record

from training.common import life
from training.common.errors import TrainingError, fail, one_line
from training.wire.events import Body, EventLog, RunEnd
from training.wire.job import EVENTS_FILE, rank_folder

Write = Callable[[Body], None]


def run(program: Callable[[Write], None], events: Path | None) -> None:
    """Runs `program` with a function that writes this rank's events, then writes RunEnd.

    A TrainingError (a UserError is one) ends the process with its one sentence and its status, any other exception
    with a traceback, of which torch elastic is told.
    """
    if events is None:
        life.begin(None)
        _run(program, lambda _: None)
        return
    rank = int(os.environ.get("RANK", "0"))
    with EventLog(events / rank_folder(rank) / EVENTS_FILE, rank) as log:
        life.begin(log)
        try:
            _run(program, log.write)
        finally:
            life.end()


def _run(program: Callable[[Write], None], write: Write) -> None:
    try:
        problem = record(_problem)(program, write)
    except BaseException as error:
        write(RunEnd(status="failed", error=one_line(error)))
        raise
    if problem is not None:
        write(RunEnd(status="failed", error=one_line(problem)))
        fail(problem)
    write(RunEnd(status="succeeded", error=None))


def _problem(program: Callable[[Write], None], write: Write) -> TrainingError | None:
    """Runs the program and returns an error that is no bug of ours, so that torch elastic prints no traceback of it."""
    try:
        program(write)
    except TrainingError as error:
        return error
    return None
