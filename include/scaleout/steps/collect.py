"""collect: what the nodes wrote comes home, and becomes the trial's row."""

from __future__ import annotations

from scaleout.analysis.trial import row_of
from scaleout.errors import ScaleoutError
from scaleout.plan.sweep import Trial
from scaleout.remote.collect import fetch_folder
from scaleout.remote.fleet import each
from scaleout.results.remains import remains_of
from scaleout.results.store import ROW_FILE
from scaleout.steps.run_folder import run_folder
from scaleout.steps.session import Session


async def collect(session: Session, trial: Trial) -> str | None:
    """Fetches the last try of a trial, writes its row and gives it in a sentence; None when there was no try."""
    store = session.store
    folder = store.last_try(trial.key)
    if folder is None:
        return None
    async with session.holding(trial.node_names) as nodes:
        await each(
            "collecting",
            nodes,
            lambda node: fetch_folder(node, run_folder(session, node, folder), store.folder / folder / node.name),
        )
    row = row_of(remains_of(store, session.sweep, trial, folder))
    store.write(row.model_dump(mode="json"), folder, ROW_FILE)
    if row.status != "succeeded":
        raise ScaleoutError(f"{trial.key}: {row.reasons['images_per_s']}")
    return (
        f"{trial.key}: {row.images_per_s:.3f} images/s, cache state {row.cache_state}; files in {store.folder / folder}"
    )
