"""settle: no gang of a trial runs any more, whatever Airflow holds to be over.

A task that is marked failed is over for Airflow at once, and what comes after it begins while it still stops its gang; one that
was killed over that has left its gang to the lease.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaleout.plan.sweep import Trial
from scaleout.remote.gang import end_gang
from scaleout.results.store import IN_FLIGHT, LAUNCH_FILE
from scaleout.steps.places import rebuilt
from scaleout.steps.session import Session


async def settle(session: Session, trials: Sequence[Trial]) -> None:
    """Ends gangs whose launch has not reported their end, and the sweep with them. Raises FleetError when a node of theirs
    cannot be reached."""
    store = session.store
    for trial in trials:
        folder = store.last_try(trial.key)
        if folder is None or (record := store.read(folder, LAUNCH_FILE))["failure"] != IN_FLIGHT:
            continue
        session.say(f"{folder} did not report its end: ending what runs of it")
        async with session.connected(trial.node_names) as nodes:
            await end_gang(rebuilt(record, nodes))
        record = store.read(folder, LAUNCH_FILE)
        if record["failure"] == IN_FLIGHT:
            store.write(record | {"failure": "stopped on request"}, folder, LAUNCH_FILE)
            store.update(stopped=f"the sweep was stopped in {folder}")
