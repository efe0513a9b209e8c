"""The orchestrator's end of the gang protocol: starts a job on every node of a trial, and holds them as one.

All or none: every node is connected and ready before any is told to go. One falls, all stop. A cancelled call stops the gang
before it returns. What the nodes do when this side vanishes is theirs (`training/node/gang_part.py`): the lease ends them,
unless another attempt picks the gang up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from scaleout.errors import FleetError, GangError, NodeError, SupersededError
from scaleout.remote.causes import first_cause
from scaleout.remote.fleet import each
from scaleout.remote.part import Log, Part, Place, say_state
from training.wire.job import ExitStatus, PartState

__all__ = ["Log", "Place", "each_place", "end_gang", "pick_up", "run_gang", "states_of"]

T = TypeVar("T")

STOP_MARGIN_S = 40.0
MOST_RENEWAL_INTERVAL_S = 2.0
RENEWALS_PER_LEASE = 5
PATIENCE_S = 30.0


async def run_gang(
    places: Sequence[Place], log: Log, *, patience_s: float = PATIENCE_S, no_progress_s: float | None = None
) -> list[ExitStatus]:
    """Runs all parts at once to their common end; `log(node, line)` gets each line of their logs as it comes.

    A node that is out of reach for `patience_s`, or for its lease where that is shorter, counts as fallen. When no rank of any
    node has made progress for `no_progress_s`, stacks are collected and the gang is stopped.

    Returns the exit statuses, in order, when every part succeeded. Raises GangError with the first cause otherwise,
    SupersededError when another attempt has picked the gang up, and CancelledError after the gang has been stopped.
    """
    parts = [Part(place, log, patience_s) for place in places]
    return await _hold(parts, Part.start, no_progress_s)


async def pick_up(
    places: Sequence[Place], log: Log, *, patience_s: float = PATIENCE_S, no_progress_s: float | None = None
) -> list[ExitStatus]:
    """The same for a gang that an earlier orchestrator started and that is running or over, from its first log line on."""
    parts = [Part(place, log, patience_s) for place in places]
    return await _hold(parts, Part.attach, no_progress_s)


async def states_of(places: Sequence[Place]) -> dict[str, PartState]:
    """By node: whether a part of a gang was started there, and lives. Raises FleetError."""
    return await each_place("looking for the gang", places, say_state)


async def each_place(step: str, places: Sequence[Place], do: Callable[[Place], Awaitable[T]]) -> dict[str, T]:
    """`fleet.each` for the places of a gang, by their nodes' names. Raises FleetError."""
    by_name = {place.node.name: place for place in places}
    return await each(step, [place.node for place in places], lambda node: do(by_name[node.name]))


async def end_gang(places: Sequence[Place]) -> None:
    """Stops what still runs of a gang, and waits for it. Raises FleetError when a node cannot be asked."""
    states = await states_of(places)
    running = [place for place in places if states[place.node.name] == "running"]
    parts = [Part(place, lambda *_: None, PATIENCE_S) for place in running]
    for part in parts:
        part.say("stop")
    with contextlib.suppress(GangError):
        await _hold(parts, Part.attach, None)


async def _hold(
    parts: list[Part], begin: Callable[[Part], Awaitable[None]], no_progress_s: float | None
) -> list[ExitStatus]:
    await _all_begun(parts, begin)
    running = {asyncio.create_task(part.follow()): part for part in parts}
    renewing = asyncio.create_task(_renew(parts, no_progress_s))
    try:
        await _until_all_end_or_one_fails(running)
    finally:
        try:
            await _stop(running)
        finally:
            renewing.cancel()
    cause = first_cause([(part, task) for task, part in running.items()])
    if cause is not None:
        raise cause
    return [task.result() for task in running]


async def _all_begun(parts: list[Part], begin: Callable[[Part], Awaitable[None]]) -> None:
    """Every part is ready, or none is started. Raises GangError."""
    tasks = [asyncio.create_task(begin(part)) for part in parts]
    try:
        await asyncio.gather(*tasks, return_exceptions=True)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for part in parts:
            part.say("stop")
            part.leave()
        raise
    problems = [error for task in tasks if (error := task.exception()) is not None]
    for error in problems:
        if not isinstance(error, NodeError):
            raise error
    if problems:
        for part in parts:
            part.leave()
        told = [error for error in problems if isinstance(error, NodeError)]
        raise GangError(str(told[0]) if len(told) == 1 else str(FleetError("launching", told)))
    for part in parts:
        part.say("go")


async def _until_all_end_or_one_fails(running: dict[asyncio.Task[ExitStatus], Part]) -> None:
    pending = set(running)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        if any(task.exception() is not None or task.result().state != "succeeded" for task in done):
            return


async def _stop(running: dict[asyncio.Task[ExitStatus], Part]) -> None:
    """Asks what still runs to stop, and waits for its exit status; a node that does not answer is left to its lease.

    Cancelled meanwhile, it is first over with that: a second Ctrl-C must not cut off the nodes' answer to the first.
    """
    cancelled = False
    pending = {task for task in running if not task.done()}
    if _was_superseded(running):
        for task in pending:
            running[task].leave()
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return
    word = "stall" if any(part.told_to_stall for part in running.values()) else "stop"
    for task in pending:
        running[task].say(word)
    if pending:
        grace_s = max(running[task].place.job.grace_s for task in pending)
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


def _was_superseded(running: dict[asyncio.Task[ExitStatus], Part]) -> bool:
    return any(task.done() and isinstance(task.exception(), SupersededError) for task in running)


async def _renew(parts: list[Part], no_progress_s: float | None) -> None:
    """Renews every lease, drops connections that have fallen silent, and ends a gang that makes no progress."""
    interval_s = min(MOST_RENEWAL_INTERVAL_S, *(part.place.job.lease_s / RENEWALS_PER_LEASE for part in parts))
    while True:
        await asyncio.sleep(interval_s)
        for part in parts:
            part.say("renew")
            part.drop_if_silent()
        idle = [part.idle_s() for part in parts if part.is_running()]
        if no_progress_s is not None and idle and min(idle) > no_progress_s:
            for part in parts:
                part.say("stall")
