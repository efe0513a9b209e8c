"""The orchestrator's session with one node's supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import asyncssh

from scaleout.errors import NodeError, SupersededError
from scaleout.remote.node import Node
from training.wire.job import ExitStatus, Job, PartState
from training.wire.schema import WireError, from_dict, to_dict

READY_LIMIT_S = 60.0
STATE_LIMIT_S = 30.0
RECONNECT_LIMIT_S = 5.0
RECONNECT_PAUSE_S = 0.3
# A node whose cores are all busy answers late; one that is out of reach must be missed while there is patience left.
LEAST_SILENCE_S, MOST_SILENCE_S, SILENT_PART = 2.0, 10.0, 1 / 3

Log = Callable[[str, str], None]


@dataclass(frozen=True)
class Place:
    """One node's part of a gang: the job, where its release lies, and its run folder, absolute on the node."""

    node: Node
    job: Job
    release_path: str
    folder: str

    def command(self, action: str, *arguments: str) -> list[str]:
        """The argument vector of the node's supervisor program."""
        program = f"{self.release_path}/training/node/supervisor.py"
        return [self.node.python, program, action, self.folder, *arguments]


async def say_state(place: Place) -> PartState:
    """Whether a part runs in the place's folder. Raises NodeError."""
    answer = await place.node.run(place.command("state"), timeout_s=STATE_LIMIT_S)
    if answer.exit_status != 0:
        raise NodeError(place.node.name, answer.last_words())
    state: PartState = place.node.last_object(answer)["part"]
    return state


class _LostError(Exception):
    """The connection broke; the part may live on."""


class Part:
    """One node's part of a gang. `say` may be called at any time: words wait until there is a session to say them in."""

    def __init__(self, place: Place, log: Log, patience_s: float) -> None:
        self.place = place
        self.ended_wall_s = 0.0
        self.clock_ahead_s = 0.0
        self._log = log
        self._patience_s = min(patience_s, place.job.lease_s)
        self._process: asyncssh.SSHClientProcess[bytes] | None = None
        self._position = 0
        self._last_word: str | None = None
        self._heard_s = self._idle_at_s = time.monotonic()
        self._idle_s = 0.0
        self._over = self._listening = False

    async def start(self) -> None:
        """Has the node get ready; it starts nothing before "go". Raises NodeError."""
        await self._begin("start", json.dumps(to_dict(self.place.job)).encode() + b"\n")

    async def attach(self) -> None:
        """Takes the running part over, with its log from where this side has it. Raises NodeError."""
        await self._begin("attach", b"", str(self._position))

    async def follow(self) -> ExitStatus:
        """Follows a part that was started or attached, over as many connections as it takes, until its exit status has come.

        Raises NodeError when the node is out of reach for too long, or its supervisor is dead, and SupersededError.
        """
        try:
            while True:
                try:
                    self._listening = True
                    return await self._listen()
                except _LostError as lost:
                    self._listening = False
                    await self._reattach(lost)
        finally:
            self._over, self._listening = True, False
            self.ended_wall_s = time.time()

    def say(self, word: str) -> None:
        """Sends a word to the supervisor, now or as soon as there is a session."""
        if word in ("stop", "stall"):
            self._last_word = word
        self._send(word.encode() + b"\n")

    @property
    def told_to_stall(self) -> bool:
        return self._last_word == "stall"

    def leave(self) -> None:
        """Ends the session, not the part; one that was not told to go never starts."""
        if self._process is not None:
            self._process.close()

    def drop_if_silent(self) -> None:
        """Gives a connection up on which renewals are not answered any more."""
        limit_s = max(LEAST_SILENCE_S, min(MOST_SILENCE_S, SILENT_PART * self._patience_s))
        if self._listening and time.monotonic() - self._heard_s > limit_s:
            self.place.node.connection.abort()

    def is_running(self) -> bool:
        return not self._over

    def idle_s(self) -> float:
        """Seconds without progress of a rank of this node, as far as the node has told."""
        return self._idle_s + time.monotonic() - self._idle_at_s if self._idle_s else 0.0

    async def _begin(self, action: str, message: bytes, *arguments: str) -> None:
        try:
            await asyncio.wait_for(self._open(action, message, *arguments), READY_LIMIT_S)
        except TimeoutError:
            raise NodeError(self.place.node.name, f"was not ready within {READY_LIMIT_S:g} s") from None
        except _LostError as lost:
            raise NodeError(self.place.node.name, str(lost)) from None

    async def _open(self, action: str, message: bytes, *arguments: str) -> None:
        """A session up to the supervisor's first word. Raises _LostError, NodeError."""
        # The line break ends a greeting of the login shell that lacks its own; the first message must stand alone.
        command = f"printf '\\n'; {shlex.join(self.place.command(action, *arguments))}"
        try:
            process = await self.place.node.connection.create_process(command, encoding=None)
        except (asyncssh.Error, OSError) as error:
            raise _LostError(f"the connection was lost: {error}") from None
        self._process = process
        self._send(message)
        while "ready" not in (said := await self._next_message()):
            if "log" in said:  # a login shell that greets
                self._log(self.place.node.name, said["log"])
        self.clock_ahead_s = said["ready"] - time.time()
        if self._last_word:
            self.say(self._last_word)

    def _send(self, message: bytes) -> None:
        """To the session, if there is one. One that has ended takes nothing; why it did, its last words tell."""
        if self._process is not None and not self._process.is_closing():
            with contextlib.suppress(asyncssh.Error, OSError):
                self._process.stdin.write(message)

    async def _listen(self) -> ExitStatus:
        name = self.place.node.name
        while True:
            said = await self._next_message()
            if "log" in said:
                self._position = said.get("end", self._position)
                self._log(name, said["log"])
            elif "renewed" in said:
                self._idle_s, self._idle_at_s = said["idle_s"], time.monotonic()
            elif "exit" in said:
                try:
                    return from_dict(ExitStatus, said["exit"], name)
                except WireError as error:
                    raise NodeError(name, f"its supervisor said something else than agreed: {error}") from None
            elif "dead" in said:
                raise NodeError(name, said["dead"])
            elif "superseded" in said:
                raise SupersededError(f"{name}: a newer attempt has taken this gang over; this one lets go of it")
            # Lines that are there already are read without a pause; a talkative node must not hold up the renewals.
            await asyncio.sleep(0)

    async def _next_message(self) -> dict[str, Any]:
        """A message of the supervisor; a line that is none (a login shell's banner) comes as one of its log.

        Raises _LostError for a broken connection, NodeError for a supervisor that ended without an answer.
        """
        process = self._process
        assert process is not None
        try:
            while line := await process.stdout.readline():
                self._heard_s = time.monotonic()
                if line.strip():
                    return _parsed(line)
            errors = (await process.stderr.read()).decode("utf-8", "replace").strip().splitlines()
            await process.wait_closed()
        except (asyncssh.Error, OSError) as error:
            raise _LostError(f"the connection was lost: {error}") from None
        if process.exit_status is None or process.exit_signal is not None:
            raise _LostError("the connection was lost before the gang's part had ended")
        raise NodeError(self.place.node.name, errors[-1] if errors else "its supervisor ended without a word")

    async def _reattach(self, lost: _LostError) -> None:
        """A new connection and a new session, as soon as the node can be reached. Raises NodeError."""
        node, deadline = self.place.node, self._heard_s + self._patience_s
        self._log(node.name, f"({lost}; trying to reach the node again)")
        while True:
            # Once in any case: this side may have been suspended, and the node be well.
            left = max(1.0, deadline - time.monotonic())
            if await self._reached(left):
                self._log(node.name, "(reached again)")
                return
            if time.monotonic() > deadline:
                raise NodeError(node.name, f"{lost}, and within {self._patience_s:g} s it could not be reached again")
            await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _reached(self, limit_s: float) -> bool:
        """Whether there is a session again. Raises NodeError when the node answers, and its supervisor has no part for us."""
        try:
            await self.place.node.reconnect(min(RECONNECT_LIMIT_S, limit_s))
        except NodeError:
            return False
        try:
            await asyncio.wait_for(self._open("attach", b"", str(self._position)), limit_s)
        except (_LostError, TimeoutError):
            return False
        return True


def _parsed(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError:
        message = None
    if isinstance(message, dict):
        return message
    return {"log": line.decode("utf-8", "replace").rstrip("\n")}
