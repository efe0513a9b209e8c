"""settle: no gang of the sweep runs any more, whatever Airflow holds to be over.

A task that is marked failed is over for Airflow at once, and what comes after it begins while it still stops its gang; one that
was killed over that has left its gang to the lease.
"""

from __future__ import annotations

from collections.abc import Sequence

from scaleout.plan.sweep import Trial
from scaleout.remote.gang import end_gang
from scaleout.results.store import IN_FLIGHT, LAUNCH_FILE, PREPARE_FILE
from scaleout.steps.places import rebuilt
from scaleout.steps.session import Session


async def settle(session: Session, trials: Sequence[Trial]) -> None:
    """Ends gangs whose launch has not reported their end, and the sweep with them. Raises FleetError when a node of theirs
    cannot be reached."""
    for trial in trials:
        folder = session.store.last_try(trial.key)
        if folder is not None and await _end(session, folder, (folder, LAUNCH_FILE)):
            session.store.update(stopped=f"the sweep was stopped in {folder}")


async def settle_all(session: Session) -> None:
    """The same for all trials of the sweep, and for the preparation of their data. Raises FleetError."""
    await settle_preparation(session)
    await settle(session, session.sweep.trials)


async def settle_preparation(session: Session) -> None:
    """Ends what an attempt at preparing data has left on the nodes. Raises FleetError."""
    if (session.store.folder / PREPARE_FILE).exists():
        await _end(session, "the preparation of data", (PREPARE_FILE,))


async def _end(session: Session, what: str, file: tuple[str, ...]) -> bool:
    """Ends a gang that has not reported its end; whether it was this that ended it, and so had to be recorded here."""
    record = session.store.read(*file)
    if record["failure"] != IN_FLIGHT:
        return False
    session.say(f"{what} did not report its end: ending what runs of it")
    async with session.connected(list(record["folders"])) as nodes:
        await end_gang(rebuilt(record, nodes))
    record = session.store.read(*file)
    if record["failure"] != IN_FLIGHT:
        return False
    session.store.write(record | {"failure": "stopped on request"}, *file)
    return True
