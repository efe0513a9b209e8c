"""Brings a run folder of a node to the orchestrator: an archive over the channel, unpacked as it comes."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import tarfile
from collections.abc import Coroutine
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import asyncssh

from scaleout import settings
from scaleout.errors import NodeError, ScaleoutError
from scaleout.remote.node import BEGIN, Node

ANSWER_LIMIT_S = 60.0
SILENCE_LIMIT_S = 120.0
BLOCK_BYTES = 2**19
IN_FLIGHT_BYTES = 2**20
MOST_GREETING_BYTES = 2**20
MOST_ERROR_BYTES = 4096


async def fetch_folder(node: Node, remote: str, local: Path, *, silence_s: float = SILENCE_LIMIT_S) -> bool:
    """Copies the files of a folder on the node to `local`, whatever their size. False when there is no such folder.

    `local` appears, or is replaced, when everything has come. Raises NodeError, also when the node sends nothing for
    `silence_s`, and ScaleoutError where `local` cannot be written.
    """
    exists = await node.run(["test", "-d", remote], timeout_s=ANSWER_LIMIT_S)
    if exists.exit_status != 0:
        return False
    partial = local.with_name(f".{local.name}.partial")
    try:
        _remove(partial)
        partial.mkdir(parents=True)
        try:
            await _receive(node, remote, partial, silence_s)
            _remove(local)
            partial.replace(local)
        finally:
            _remove(partial)
    except OSError as error:
        raise ScaleoutError(
            f"{local}: the files of {node.name} cannot be written there: {error.strerror}; they are in {remote} on it"
        ) from None
    return True


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


async def _receive(node: Node, remote: str, local: Path, silence_s: float) -> None:
    """Unpacks in a thread: disks may be slow, and the loop has leases and locks to renew."""
    program = (settings.training_dir() / "node" / "archive.py").read_text()
    command = f"printf '\\n{BEGIN}\\n'; exec {shlex.join([node.python, '-I', '-c', program, remote])}"
    try:
        process = await node.connection.create_process(command, encoding=None)
    except (asyncssh.Error, OSError) as error:
        raise NodeError(node.name, f"the connection was lost: {error}") from None
    stream = _Stream(process, silence_s)
    errors = asyncio.create_task(_end_of(process.stderr))
    unpacking = asyncio.create_task(asyncio.to_thread(_unpack, stream, local))
    try:
        damage = await asyncio.shield(unpacking)
        async with asyncio.timeout(silence_s):
            with contextlib.suppress(OSError):
                process.stdin.write_eof()
            await process.wait_closed()
            words = await errors
    except _NotPlainError as error:
        raise NodeError(node.name, f"{remote} could not be fetched whole: {error}") from None
    except TimeoutError:
        raise NodeError(node.name, f"{remote} could not be fetched whole: nothing came for {silence_s:g} s") from None
    finally:
        stream.close()
        process.close()
        errors.cancel()
        await asyncio.wait([unpacking, errors])
    _judge(node, remote, process.exit_status, damage, words)


def _judge(node: Node, remote: str, status: int | None, damage: str | None, words: str) -> None:
    if status is None:
        raise NodeError(node.name, f"the connection was lost before {remote} had come whole")
    if status != 0:
        damage = words or f"tar ended with exit status {status}"
    if damage:
        raise NodeError(node.name, f"{remote} could not be fetched whole: {damage}")


async def _end_of(errors: asyncssh.SSHReader[bytes]) -> str:
    """The last line of a stream, which is read to its end: one that nobody reads would stop the other."""
    kept = b""
    try:
        while block := await errors.read(BLOCK_BYTES):
            kept = (kept + block)[-MOST_ERROR_BYTES:]
    except (asyncssh.Error, OSError):
        pass
    lines = kept.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


class _NotPlainError(Exception):
    """The folder holds something else than files and folders."""


class _Stream:
    """What the archive program writes, read by another thread than the loop's, and asked for as it is read."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes], silence_s: float) -> None:
        self._process, self._silence_s = process, silence_s
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Task[bytes] | None = None
        self._closed = False
        self._begun = False
        self._to_come_bytes = 0

    def read(self, size: int) -> bytes:
        """At most `size` bytes, none at the end. Raises TimeoutError, and CancelledError once it was closed."""
        if not self._begun:
            self._begun = True
            return self._after_greeting()
        return self._wait_for(self._next(size))

    def close(self) -> None:
        """Ends a read that waits, and those to come."""
        self._closed = True
        if self._waiting is not None:
            self._waiting.cancel()

    def _after_greeting(self) -> bytes:
        mark, seen = f"\n{BEGIN}\n".encode(), b""
        while mark not in seen and len(seen) < MOST_GREETING_BYTES:
            block = self._wait_for(self._next(BLOCK_BYTES))
            if not block:
                return b""
            seen += block
        return seen.partition(mark)[2] or self.read(BLOCK_BYTES)

    def _wait_for(self, reading: Coroutine[Any, Any, bytes]) -> bytes:
        return asyncio.run_coroutine_threadsafe(reading, self._loop).result()

    async def _next(self, size: int) -> bytes:
        if self._closed:
            raise asyncio.CancelledError
        self._waiting = asyncio.current_task()
        self._ask_for_more()
        async with asyncio.timeout(self._silence_s):
            try:
                block = await self._process.stdout.read(size)
            except (asyncssh.Error, OSError) as error:
                raise tarfile.ReadError(str(error)) from None
        self._to_come_bytes -= len(block)
        return block

    def _ask_for_more(self) -> None:
        if self._to_come_bytes <= IN_FLIGHT_BYTES // 2:
            self._to_come_bytes += IN_FLIGHT_BYTES
            with contextlib.suppress(OSError):  # it has ended; what it has written is read
                self._process.stdin.write(f"{IN_FLIGHT_BYTES}\n".encode())


def _unpack(stream: _Stream, local: Path) -> str | None:
    """Writes what the archive holds below `local`. Gives what is wrong with the archive, None when it ended as it should.

    Raises OSError when `local` cannot be written, TimeoutError and _NotPlainError.
    """
    try:
        with tarfile.open(
            fileobj=stream,
            mode="r|",
            bufsize=BLOCK_BYTES,
            copybufsize=BLOCK_BYTES,
            encoding="utf-8",
            errors="surrogateescape",
        ) as files:
            while (member := files.next()) is not None:
                _extract(files, member, local)
        while stream.read(BLOCK_BYTES):
            pass
    except tarfile.TarError as error:
        return str(error)
    except CancelledError:
        return "stopped"
    return None


def _extract(files: tarfile.TarFile, member: tarfile.TarInfo, local: Path) -> None:
    """Writes a regular file or a folder below `local`, and refuses all else. (`extractall(filter=)` needs Python 3.11.4.)"""
    target = (local / member.name).resolve()
    if not (member.isdir() or member.isreg()) or not target.is_relative_to(local.resolve()):
        raise _NotPlainError(f"{member.name!r} is no plain file or folder in it")
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    files.makefile(member, target)
