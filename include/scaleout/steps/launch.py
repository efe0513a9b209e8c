"""launch: the gang of one trial, from first connection to last exit status, through deaths of the orchestrator.

`launch.json` says of each try what was run and how it ended. A try that did not report its end was left by an attempt that
died: its gang is picked up where it is whole, else ended, and a clean try takes its place.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from scaleout.errors import FleetError, GangError, ScaleoutError
from scaleout.plan.sweep import Trial
from scaleout.remote import lock
from scaleout.remote.causes import merely_stopped
from scaleout.remote.gang import Place, each_place, end_gang, pick_up, run_gang, states_of
from scaleout.remote.node import Node
from scaleout.results.store import IN_FLIGHT, LAUNCH_FILE
from scaleout.steps.empty_caches import claim_emptied
from scaleout.steps.held import Record, ended, held
from scaleout.steps.places import ANSWER_LIMIT_S, described, new_places, rebuilt
from scaleout.steps.session import Session
from training.wire.job import EXIT_FILE, ExitStatus
from training.wire.schema import from_dict

RECONNECT_PAUSE_S = 1.0


async def launch(session: Session, trial: Trial, order: int) -> None:
    """Runs the trial. Raises GangError, FleetError.

    `order` counts the wishes to have it run: Airflow's retries of a task belong to one, a person who clears it makes another.
    A try that ended is never started again by the same order.
    """
    folder = session.store.last_try(trial.key)
    record: Record = (session.store.read(folder, LAUNCH_FILE) if folder else None) or {}
    if folder and record["failure"] == IN_FLIGHT:
        if await _picked_up(session, trial, folder, record):
            return
    elif folder and record["order"] == order and not record["abandoned"]:
        session.say(f"{folder} had ended before the orchestrator died")
        if record["failure"] is not None:
            raise GangError(record["failure"])
        return
    elif folder and record["order"] != order:
        session.store.update(stopped=None)  # whoever had stopped the sweep here wants it to go on
    await _clean_try(session, trial, order)


async def _clean_try(session: Session, trial: Trial, order: int) -> None:
    """In a folder of its own, with a rendezvous of its own, from empty caches."""
    folder = session.store.next_try(trial.key)
    if trial.cache_mode == "cold":
        await claim_emptied(session, trial, folder, order)
    async with session.holding(trial.node_names) as nodes:
        places = await new_places(session, trial, folder, nodes)
        record = {
            **described(places),
            "order": order,
            "started_wall_s": time.time(),
            "picked_up_wall_s": [],
            "abandoned": False,
        }
        for name, command in record["commands"].items():
            session.say(f"[{name}] $ {command}")
        await held(session.store, (folder, LAUNCH_FILE), record, run_gang(places, session.hear, **_limits(session)))


async def _picked_up(session: Session, trial: Trial, folder: str, record: Record) -> bool:
    """Follows the gang of a try to its end; where it is not whole, ends what is left of it and gives False."""
    file = (folder, LAUNCH_FILE)
    try:
        async with _patiently_connected(session, trial) as nodes:
            # Nobody has renewed the lock meanwhile: it may have run out without another sweep coming.
            root = session.sweep.cluster.remote_root
            await lock.acquire(nodes, root, session.claim)
            async with lock.renewed(nodes, root, session.claim):
                places = rebuilt(record, nodes)
                problem = await _why_not_whole(places)
                if problem is None:
                    session.say(f"{folder} went on without an orchestrator: here is its log from the first line")
                    record["picked_up_wall_s"].append(time.time())
                    await held(session.store, file, record, pick_up(places, session.hear, **_limits(session)))
                    return True
                session.say(f"{folder} is abandoned, a clean try takes its place: {problem}")
                await end_gang(places)
    except FleetError as error:
        await _end_where_possible(session, trial, record)
        ended(session.store, file, record, failure=f"abandoned: {error}", abandoned=True)
        raise
    ended(session.store, file, record, failure=f"abandoned: {problem}", abandoned=True)
    return False


@asynccontextmanager
async def _patiently_connected(session: Session, trial: Trial) -> AsyncIterator[list[Node]]:
    """Connections to the trial's nodes, one of which may be out of reach for as long as while its gang is followed."""
    deadline = time.monotonic() + session.sweep.cluster.node_patience_s
    async with contextlib.AsyncExitStack() as stack:
        while True:
            try:
                nodes = await stack.enter_async_context(session.connected(trial.node_names))
                break
            except FleetError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(RECONNECT_PAUSE_S)
        yield nodes


async def _why_not_whole(places: Sequence[Place]) -> str | None:
    """None when every part runs, or one has ended by itself. Raises FleetError.

    Where a part was stopped and none tells a cause, the attempt that stopped it had one of its own, and died with it: what a
    person asks for is recorded before.
    """
    for node, state in (await states_of(places)).items():
        if state == "absent":
            return f"{node}: its part was never started"
        if state == "dead":
            return f"{node}: its part died with its supervisor"
    found = await each_place("reading exit statuses", places, _exit_status)
    over = [status for status in found.values() if status and status.state != "succeeded"]
    for status in over:
        if status.state == "lease_expired":
            return f"{status.node}: {status.reason}"
    if over and all(merely_stopped(status) for status in over):
        return f"{over[0].node}: its part was stopped by an attempt that died meanwhile"
    return None


async def _exit_status(place: Place) -> ExitStatus | None:
    """Of a part that is over."""
    command = ["sh", "-c", '[ ! -e "$1" ] || cat "$1"', "sh", f"{place.folder}/{EXIT_FILE}"]
    text = await place.node.read(command, timeout_s=ANSWER_LIMIT_S)
    return from_dict(ExitStatus, json.loads(text), place.node.name) if text.strip() else None


async def _end_where_possible(session: Session, trial: Trial, record: Record) -> None:
    for name in trial.node_names:
        with contextlib.suppress(ScaleoutError):
            async with session.connected([name]) as nodes:
                await end_gang(rebuilt(record, nodes))


def _limits(session: Session) -> dict[str, Any]:
    cluster = session.sweep.cluster
    return {"patience_s": cluster.node_patience_s, "no_progress_s": cluster.no_progress_s}
