"""One connected node: commands as argument vectors, programs sent over standard input, answers as JSON."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from scaleout import settings
from scaleout.errors import NodeError
from scaleout.remote.target import Target

KEEPALIVE_S = 15
# A login shell may greet on both streams, with or without a last line break; what a command says comes after this.
BEGIN = "scaleout-begin"
_SAY_BEGIN = f"printf '\\n{BEGIN}\\n'; printf '\\n{BEGIN}\\n' >&2"

# Runs a program that ends with its connection: standard input, which nobody writes to, ends then.
_UNTIL_HANGUP = """
exec 3<&0
"$@" </dev/null 3<&- &
program=$!
{ cat <&3 >/dev/null; kill "$program"; } 2>/dev/null &
watcher=$!
wait "$program"
status=$?
kill "$watcher" 2>/dev/null
exit "$status"
"""

# At its default it writes nine lines per command into the task's log.
asyncssh.set_log_level("WARNING")


@dataclass(frozen=True)
class Answer:
    """What a command said. `exit_status` is the remote command's own; a lost connection is an error, never an answer."""

    exit_status: int
    stdout: str
    stderr: str

    def last_words(self) -> str:
        """The last non-empty line of stderr, else of stdout."""
        lines = [line for line in (self.stderr.strip() or self.stdout.strip()).splitlines() if line.strip()]
        return lines[-1].strip() if lines else "it said nothing"


class Node:
    """A connection to a node, and the absolute paths behind its `~`."""

    def __init__(self, target: Target, connection: asyncssh.SSHClientConnection, python: str, home: str) -> None:
        self.name = target.name
        self.host = target.host
        self._target = target
        self.connection = connection
        self.home = home
        self.python = self.path(python)

    def path(self, path: str) -> str:
        """`~/x` as an absolute path on the node."""
        return self.home + path[1:] if path == "~" or path.startswith("~/") else path

    async def reconnect(self, timeout_s: float) -> None:
        """Gives up the connection for a new one, which all who hold this node use from now on. Raises NodeError."""
        self.connection.abort()
        self.connection = await _opened(self._target, timeout_s)

    async def run(self, command: list[str], *, stdin: bytes = b"", timeout_s: float) -> Answer:
        """Runs an argument vector to its end. Raises NodeError (lost connection, time limit)."""
        status, stdout, stderr = await _run(self.name, self.connection, shlex.join(command), stdin, timeout_s)
        return Answer(status, _text(stdout), _text(stderr))

    async def read(self, command: list[str], *, timeout_s: float) -> bytes:
        """The stdout of a command that must succeed, byte for byte. Raises NodeError."""
        status, stdout, stderr = await _run(self.name, self.connection, shlex.join(command), b"", timeout_s)
        if status != 0:
            raise NodeError(self.name, Answer(status, "", _text(stderr)).last_words())
        return stdout

    async def follow(self, command: list[str], say: Callable[[str], None]) -> int:
        """Runs an argument vector, however long it takes, and gives its exit status; `say` gets each line as it comes.

        Cancelled, it ends the program. Raises NodeError when the connection is lost.
        """
        program = shlex.join(["sh", "-c", _UNTIL_HANGUP, "sh", *command])
        try:
            process = await self.connection.create_process(f"printf '\\n{BEGIN}\\n'; {program} 2>&1", errors="replace")
            try:
                begun = False
                async for line in process.stdout:
                    if begun:
                        say(line.rstrip("\n"))
                    begun = begun or line == f"{BEGIN}\n"
                await process.wait_closed()
            finally:
                process.close()
        except (asyncssh.Error, OSError) as error:
            raise NodeError(self.name, f"the connection was lost: {error}") from None
        if process.exit_status is None:
            raise NodeError(self.name, "the connection was lost before the command ended")
        return process.exit_status

    async def ask(self, program: str, *arguments: str, timeout_s: float) -> dict[str, Any]:
        """Runs `training/node/<program>.py`, sent over standard input, and gives the object on its last line.

        The program needs nothing but the node's Python. Raises NodeError with its last words when it fails.
        """
        source = (settings.training_dir() / "node" / f"{program}.py").read_bytes()
        command = [self.python, "-I", "-", *arguments]
        answer = await self.run(command, stdin=source, timeout_s=timeout_s)
        if answer.exit_status != 0:
            raise NodeError(self.name, answer.last_words())
        return self.last_object(answer)

    def last_object(self, answer: Answer) -> dict[str, Any]:
        """The JSON object on the last line of an answer's stdout. Raises NodeError."""
        lines = answer.stdout.strip().splitlines()
        try:
            document = json.loads(lines[-1])
        except (ValueError, IndexError):
            raise NodeError(self.name, f"answered something that is not JSON: {answer.last_words()!r}") from None
        if not isinstance(document, dict):
            raise NodeError(self.name, f"answered {document!r} where an object was expected")
        return document


async def connect(target: Target, python: str, timeout_s: float) -> Node:
    """Opens a connection; the host key must be the known one. Raises NodeError with what to do next."""
    connection = await _opened(target, timeout_s)
    try:
        _, home, _ = await _run(target.name, connection, "printf '%s' \"$HOME\"", b"", timeout_s)
    except BaseException:
        connection.abort()
        raise
    return Node(target, connection, python, _text(home))


async def _opened(target: Target, timeout_s: float) -> asyncssh.SSHClientConnection:
    where = f"{target.host}:{target.port}"
    try:
        return await asyncio.wait_for(asyncssh.connect(**_options(target, timeout_s)), timeout_s)
    except TimeoutError:
        raise NodeError(target.name, f"{where} did not answer within {timeout_s:g} s: is the node up?") from None
    except asyncssh.HostKeyNotVerifiable:
        known = "its connection's host_key" if target.host_key else "any key in ~/.ssh/known_hosts"
        raise NodeError(
            target.name, f"the host key of {where} is not {known}: find out why before you change it"
        ) from None
    except asyncssh.PermissionDenied as error:
        raise NodeError(
            target.name, f"{where} refused the login of {target.user!r}: {error.reason}; check its key"
        ) from None
    except (asyncssh.Error, OSError, ValueError) as error:
        raise NodeError(target.name, f"cannot connect to {where}: {error}") from None


def _options(target: Target, timeout_s: float) -> dict[str, Any]:
    options: dict[str, Any] = {
        "host": target.host,
        "port": target.port,
        "connect_timeout": timeout_s,
        "login_timeout": timeout_s,
        "keepalive_interval": KEEPALIVE_S,
    }
    if target.user:
        options["username"] = target.user
    if target.password:
        options["password"] = target.password
    if target.private_key:
        options["client_keys"] = [asyncssh.import_private_key(target.private_key, target.passphrase)]
    elif target.key_file:
        options["client_keys"] = [str(Path(target.key_file).expanduser())]
        options["passphrase"] = target.passphrase
    if target.host_key:
        where = target.host if target.port == 22 else f"[{target.host}]:{target.port}"
        options["known_hosts"] = asyncssh.import_known_hosts(f"{where} {target.host_key}\n")
    return options


async def _run(
    name: str, connection: asyncssh.SSHClientConnection, command: str, stdin: bytes, timeout_s: float
) -> tuple[int, bytes, bytes]:
    source = asyncssh.PIPE if stdin else asyncssh.DEVNULL
    try:
        process = await connection.create_process(f"{_SAY_BEGIN}; {command}", encoding=None, stdin=source)
        try:
            if stdin:
                with suppress(BrokenPipeError):  # it has ended already: how, its status tells
                    process.stdin.write(stdin)
                    process.stdin.write_eof()
            stdout, stderr = await asyncio.wait_for(process.communicate(), timeout_s)
        finally:
            process.close()
    except TimeoutError:
        raise NodeError(name, f"did not finish within {timeout_s:g} s: {command[:80]}") from None
    except (asyncssh.Error, OSError) as error:
        raise NodeError(name, f"the connection was lost: {error}") from None
    if process.exit_status is None:
        raise NodeError(name, "the connection was lost before the command ended")
    return process.exit_status, *_begun(name, process.exit_status, bytes(stdout or b""), bytes(stderr or b""))


def _begun(name: str, status: int, stdout: bytes, stderr: bytes) -> tuple[bytes, bytes]:
    """Both streams without what the login shell said before the command. Raises NodeError when it ran none."""
    mark = f"\n{BEGIN}\n".encode()
    if mark not in stdout:
        said = Answer(status, _text(stdout), _text(stderr)).last_words()
        raise NodeError(name, f"its login shell did not run a command: {said!r}")
    return stdout.partition(mark)[2], stderr.partition(mark)[2]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
