"""One sweep at a time per cluster: a lock file on every node, taken in sorted order."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from scaleout.errors import FleetError, LockHeldError
from scaleout.remote.fleet import each
from scaleout.remote.node import Node

ANSWER_LIMIT_S = 30.0
RENEWALS_PER_TTL = 5


@dataclass(frozen=True)
class Claim:
    """Who wants the cluster. A lock that its holder did not renew for `ttl_s` is free."""

    run_id: str
    ttl_s: float
    owner: str
    host: str
    pid: int

    @classmethod
    def of(cls, run_id: str, ttl_s: float) -> Claim:
        return cls(run_id, ttl_s, _user(), socket.gethostname(), os.getpid())


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user need not have a name
        return f"user {os.getuid()}"


async def acquire(nodes: Sequence[Node], remote_root: str, claim: Claim) -> None:
    """Takes the lock on every node or on none. Raises LockHeldError, which says who holds it and since when."""
    asked: list[Node] = []
    try:
        for node in sorted(nodes, key=lambda n: n.name):
            # Before the answer: a node may have taken the lock when the answer is lost, or not waited for.
            asked.append(node)
            answer = await _ask(node, "acquire", remote_root, claim)
            if not answer["held"]:
                raise LockHeldError(_held_by(node, answer))
    except BaseException:
        await asyncio.gather(*(_ask(node, "release", remote_root, claim) for node in asked), return_exceptions=True)
        raise


async def release(nodes: Sequence[Node], remote_root: str, claim: Claim) -> None:
    """Gives the lock back where this run holds it."""
    await each("releasing the lock", nodes, lambda node: _ask(node, "release", remote_root, claim))


async def holder(node: Node, remote_root: str) -> dict:
    """`{"by": record or null, "age_s": seconds since it was renewed, "damaged": no record is in the file}`."""
    return await _ask(node, "show", remote_root, Claim.of("", 0))


async def force_release(node: Node, remote_root: str) -> dict:
    """Takes the lock away from whoever holds it, and a damaged lock file with it; the answer is that of `holder`."""
    return await _ask(node, "break", remote_root, Claim.of("", 0))


@asynccontextmanager
async def renewed(nodes: Sequence[Node], remote_root: str, claim: Claim) -> AsyncIterator[None]:
    """Keeps the lock alive while the block runs. Raises LockHeldError when this run does not hold it, at the start or later.

    Later, when someone took it away, the block is cancelled: another sweep may begin.
    """
    await _renew(nodes, remote_root, claim)
    worker = asyncio.current_task()
    assert worker is not None
    lost: list[LockHeldError] = []

    async def renew_for_ever() -> None:
        try:
            while True:
                await asyncio.sleep(claim.ttl_s / RENEWALS_PER_TTL)
                # A node that cannot be reached now may be back before the lock runs out; the work notices a dead node.
                with contextlib.suppress(FleetError):
                    await _renew(nodes, remote_root, claim)
        except LockHeldError as error:
            lost.append(error)
            worker.cancel(str(error))

    renewing = asyncio.create_task(renew_for_ever())
    try:
        yield
    except asyncio.CancelledError:
        if lost and worker.uncancel() == 0:
            raise lost[0] from None
        raise
    finally:
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing


async def _renew(nodes: Sequence[Node], remote_root: str, claim: Claim) -> None:
    answers = await each("renewing the lock", nodes, lambda node: _ask(node, "renew", remote_root, claim))
    for node, answer in answers.items():
        if not answer["held"]:
            raise LockHeldError(f"{node}: this sweep no longer holds the cluster ({_instead(answer)}): start it again")


def _instead(answer: dict) -> str:
    if answer["damaged"]:
        return "the lock file is damaged, `scaleout lock break` frees it"
    return f"run {answer['by']['run_id']} does" if answer["by"] else "nobody does"


async def _ask(node: Node, action: str, remote_root: str, claim: Claim) -> dict:
    record = json.dumps(asdict(claim))
    return await node.ask("lock", action, node.path(remote_root), record, timeout_s=ANSWER_LIMIT_S)


def _held_by(node: Node, answer: dict) -> str:
    if answer["damaged"]:
        return (
            f"{node.name}: {answer['file']} is damaged, so nobody knows whether a sweep holds this node: when none "
            "runs, `scaleout lock break` frees it"
        )
    by = answer["by"]
    return (
        f"{node.name} is held by the sweep {by['run_id']} (started by {by['owner']} on {by['host']}, pid {by['pid']}; holds "
        f"it since {since(by)}, last sign of life {answer['age_s']:.0f} s ago): wait for it, or, if it is dead, for "
        f"{by['ttl_s']:g} s without a sign of life; `scaleout lock break` takes it away at once"
    )


def since(holder: dict) -> str:
    """When a holder took the lock, by its node's clock."""
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(holder["taken_wall_s"]))
    except (ValueError, OverflowError, OSError):
        return "an unknown time"
