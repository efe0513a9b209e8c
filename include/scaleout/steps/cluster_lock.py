"""lock and unlock: one sweep at a time on the nodes."""

from __future__ import annotations

from scaleout.remote import lock
from scaleout.steps.session import Session


async def take(session: Session) -> None:
    """Raises LockHeldError, FleetError."""
    async with session.connected(session.node_names) as nodes:
        await lock.acquire(nodes, session.sweep.cluster.remote_root, session.claim)
    session.say(f"the lock of {', '.join(session.node_names)} is ours for {session.sweep.lock_ttl_s:g} s, renewed")


async def give_back(session: Session) -> None:
    async with session.connected(session.node_names) as nodes:
        await lock.release(nodes, session.sweep.cluster.remote_root, session.claim)
    session.say(f"the lock of {', '.join(session.node_names)} is free")
