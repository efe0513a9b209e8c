"""The orchestrator's end of the gang protocol: starts a job on every node of a trial, and holds them as one.

All or none: every node is connected before anything starts. One falls, all stop. A cancelled call stops the gang before
it returns. What the nodes do when this side vanishes is theirs (`training/node/gang_part.py`): the lease ends them.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncssh

from scaleout.errors import GangError, NodeError
from scaleout.remote.node import Node
from training.wire.job import ExitStatus, Job
from training.wire.schema import WireError, from_dict, to_dict

STOP_MARGIN_S = 40.0
RENEWALS_PER_LEASE = 5

Log = Callable[[str, str], None]


@dataclass(frozen=True)
class Place:
    """One node's part of a gang: the job, where its release lies, and its run folder, absolute on the node."""

    node: Node
    job: Job
    release_path: str
    folder: str


async def run_gang(places: Sequence[Place], log: Log) -> list[ExitStatus]:
    """Runs all parts at once to their common end; `log(node, line)` gets each line of their logs as it comes.

    Returns the exit statuses, in order, when every part succeeded. Raises GangError with the first cause otherwise, and
    CancelledError after the gang has been stopped.
    """
    parts = [_Part(place, log) for place in places]
    running = {asyncio.create_task(part.hold()): part for part in parts}
    renewing = asyncio.create_task(_renew(parts))
    try:
        pending = set(running)
        while pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if any(_failure(task, running[task]) for task in done):
                break
    finally:
        try:
            await _stop(parts, running)
        finally:
            renewing.cancel()
    failures = [failure for task, part in running.items() if (failure := _failure(task, part))]
    if failures:
        raise GangError(min(failures).sentence)
    return [task.result() for task in running]


@dataclass(frozen=True, order=True)
class _Failure:
    """Why one part did not succeed. The earliest is the first cause; what merely was stopped comes after all others.

    A rank that told an error was not merely stopped, even if its launcher had not ended yet when a peer's had.
    """

    was_stopped: bool
    at_wall_s: float
    sentence: str


def _failure(task: asyncio.Task[ExitStatus], part: _Part) -> _Failure | None:
    if task.cancelled():
        return _Failure(True, time.time(), f"{part.place.node.name}: did not answer when it was told to stop")
    error = task.exception()
    if error is not None:
        if not isinstance(error, NodeError):
            raise error
        return _Failure(False, part.ended_wall_s, str(error))
    status = task.result()
    if status.state == "succeeded":
        return None
    if status.rank_error is not None:
        sentence = f"{status.node}: rank {status.rank_error.rank}: {status.rank_error.error} ({status.reason})"
        return _Failure(False, status.rank_error.t_wall_s, sentence)
    tail = "\n".join(f"    {line}" for line in status.log_tail)
    sentence = f"{status.node}: {status.state}: {status.reason}; the end of its log:\n{tail}"
    return _Failure(status.state == "stopped", status.ended_wall_s, sentence)


async def _stop(parts: list[_Part], running: dict[asyncio.Task[ExitStatus], _Part]) -> None:
    """Asks what still runs to stop, and waits for its exit status; a node that does not answer is left to its lease.

    Cancelled meanwhile, it is first over with that: a second Ctrl-C must not cut off the nodes' answer to the first.
    """
    cancelled = False
    pending = {task for task in running if not task.done()}
    for task in pending:
        running[task].say("stop")
    if pending:
        grace_s = max(part.place.job.grace_s for part in parts)
        answering = asyncio.create_task(asyncio.wait(pending, timeout=grace_s + STOP_MARGIN_S))
        while not answering.done():
            try:
                await asyncio.shield(answering)
            except asyncio.CancelledError:
                cancelled = True
    for task in pending:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    if cancelled:
        raise asyncio.CancelledError


async def _renew(parts: list[_Part]) -> None:
    while True:
        await asyncio.sleep(min(part.place.job.lease_s for part in parts) / RENEWALS_PER_LEASE)
        for part in parts:
            part.say("renew")


class _Part:
    """The session with one node's supervisor."""

    def __init__(self, place: Place, log: Log) -> None:
        self.place = place
        self._log = log
        self._process: asyncssh.SSHClientProcess[bytes] | None = None
        self._stop_asked = False
        self.ended_wall_s = 0.0

    async def hold(self) -> ExitStatus:
        """Starts the part and follows it until its exit status has come. Raises NodeError."""
        try:
            return await self._follow()
        finally:
            self.ended_wall_s = time.time()

    async def _follow(self) -> ExitStatus:
        node, place = self.place.node, self.place
        supervisor = f"{place.release_path}/training/node/supervisor.py"
        # The line break ends a greeting of the login shell that lacks its own; the first message must stand alone.
        command = f"printf '\\n'; {shlex.join([node.python, supervisor, 'start', place.folder])}"
        try:
            self._process = await node.connection.create_process(command, encoding=None)
            self._process.stdin.write(json.dumps(to_dict(place.job)).encode() + b"\n")
            if self._stop_asked:
                self.say("stop")
            async for line in self._process.stdout:
                message = self._parsed(line)
                if "log" in message:
                    self._log(node.name, message["log"])
                if "exit" in message:
                    return from_dict(ExitStatus, message["exit"], node.name)
                # Lines that are there already are read without a pause; a talkative node must not hold up the renewals.
                await asyncio.sleep(0)
            errors = (await self._process.stderr.read()).decode("utf-8", "replace").strip().splitlines()
        except (asyncssh.Error, OSError) as error:
            raise NodeError(node.name, f"the connection was lost: {error}") from None
        except WireError as error:
            raise NodeError(node.name, f"its supervisor said something else than agreed: {error}") from None
        raise NodeError(node.name, errors[-1] if errors else "the connection was lost before the gang's part had ended")

    def say(self, word: str) -> None:
        """Sends a word to the supervisor, now or as soon as there is a session."""
        if word == "stop":
            self._stop_asked = True
        if self._process is not None and not self._process.is_closing():
            self._process.stdin.write(word.encode() + b"\n")

    def _parsed(self, line: bytes) -> dict[str, Any]:
        """A message of the supervisor; a line that is none (a login shell's banner) goes to the log, unless empty."""
        if not line.strip():
            return {}
        try:
            message = json.loads(line)
        except ValueError:
            message = None
        if isinstance(message, dict):
            return message
        return {"log": line.decode("utf-8", "replace").rstrip("\n")}
