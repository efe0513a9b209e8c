"""collect: what the nodes wrote comes home, and becomes the trial's row."""

from __future__ import annotations

import asyncio

from scaleout.analysis.trial import row_of
from scaleout.errors import FleetError, NodeError, ScaleoutError
from scaleout.plan.sweep import Trial
from scaleout.remote.collect import fetch_folder
from scaleout.results.remains import remains_of
from scaleout.results.store import LAUNCH_FILE, ROW_FILE
from scaleout.steps.run_folder import run_folder
from scaleout.steps.session import Session
from scaleout.steps.settle import settle


async def collect(session: Session, trial: Trial) -> str | None:
    """Fetches the tries of a trial, writes the last one's row and gives it in a sentence; None when there was no try."""
    store = session.store
    *abandoned, folder = store.tries(trial.key) or [None]
    if folder is None:
        return None
    await settle(session, [trial])
    for earlier in abandoned:
        if not _is_fetched(session, trial, earlier):
            await _fetch(session, trial, earlier)
    problems = await _fetch(session, trial, folder)
    if problems and store.read(folder, LAUNCH_FILE)["failure"] is None:
        raise FleetError("collecting", problems)
    for problem in problems:
        session.say(f"{problem}: what the trial left there stays there")
    row = row_of(remains_of(store, session.sweep, trial, folder))
    store.write(row.model_dump(mode="json"), folder, ROW_FILE)
    if row.status != "succeeded":
        raise ScaleoutError(f"{trial.key}: {row.reasons['images_per_s']}")
    return (
        f"{trial.key}: {row.images_per_s:.3f} images/s, cache state {row.cache_state}; files in {store.folder / folder}"
    )


def _is_fetched(session: Session, trial: Trial, folder: str) -> bool:
    return all((session.store.folder / folder / name).is_dir() for name in trial.node_names)


async def _fetch(session: Session, trial: Trial, folder: str) -> list[NodeError]:
    """Fetches from every node that can be reached: a node that fell takes nothing with it of what the others know."""

    async def one(name: str) -> list[NodeError]:
        try:
            async with session.holding([name]) as (node,):
                await fetch_folder(node, run_folder(session, node, folder), session.store.folder / folder / name)
        except FleetError as error:
            return error.problems
        except NodeError as error:
            return [error]
        return []

    return [problem for found in await asyncio.gather(*map(one, trial.node_names)) for problem in found]
