"""One sweep at a time per cluster: a lock file on every node, taken in sorted order."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import json
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass

from scaleout.errors import FleetError, LockHeldError
from scaleout.remote.fleet import each
from scaleout.remote.node import Node

ANSWER_LIMIT_S = 30.0


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
        return cls(run_id, ttl_s, getpass.getuser(), socket.gethostname(), os.getpid())


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


async def holders(nodes: Sequence[Node], remote_root: str) -> dict[str, dict]:
    """Per node: `{"by": record or null, "age_s": seconds since it was renewed}`."""
    nobody = Claim.of("", 0)
    return await each("reading the lock", nodes, lambda node: _ask(node, "show", remote_root, nobody))


async def force_release(nodes: Sequence[Node], remote_root: str) -> None:
    """Takes the lock away from whoever holds it."""
    nobody = Claim.of("", 0)
    await each("breaking the lock", nodes, lambda node: _ask(node, "break", remote_root, nobody))


@asynccontextmanager
async def renewed(nodes: Sequence[Node], remote_root: str, claim: Claim) -> AsyncIterator[None]:
    """Keeps the lock alive while the block runs. Raises LockHeldError at the start if this run does not hold it."""
    for node, answer in (
        await each("renewing the lock", nodes, lambda n: _ask(n, "renew", remote_root, claim))
    ).items():
        if not answer["held"]:
            holder = f"run {answer['by']['run_id']}" if answer["by"] else "nobody"
            raise LockHeldError(f"{node}: this sweep no longer holds the cluster ({holder} does): start it again")
    renewing = asyncio.create_task(_renew_for_ever(nodes, remote_root, claim))
    try:
        yield
    finally:
        renewing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await renewing


async def _renew_for_ever(nodes: Sequence[Node], remote_root: str, claim: Claim) -> None:
    while True:
        await asyncio.sleep(claim.ttl_s / 5)
        # A node that cannot be reached now may be back before the lock runs out; the work itself notices a dead node.
        with contextlib.suppress(FleetError):
            await each("renewing the lock", nodes, lambda node: _ask(node, "renew", remote_root, claim))


async def _ask(node: Node, action: str, remote_root: str, claim: Claim) -> dict:
    record = json.dumps(asdict(claim))
    return await node.ask("lock", action, node.path(remote_root), record, timeout_s=ANSWER_LIMIT_S)


def _held_by(node: Node, answer: dict) -> str:
    by = answer["by"]
    return (
        f"{node.name} is held by the sweep {by['run_id']} (started by {by['owner']} on {by['host']}, pid {by['pid']}, "
        f"last sign of life {answer['age_s']:.0f} s ago): wait for it, or, if it is dead, for {by['ttl_s']:g} s without "
        "a sign of life; `scaleout lock break` takes it away at once"
    )
