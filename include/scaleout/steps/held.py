"""Follows a gang while a record in the sweep's folder says that it runs, and then how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

from scaleout.errors import ScaleoutError, SupersededError
from scaleout.results.store import IN_FLIGHT, SweepStore
from training.wire.job import ExitStatus

Record = dict[str, Any]


async def held(
    store: SweepStore, file: tuple[str, ...], record: Record, gang: Coroutine[Any, Any, list[ExitStatus]]
) -> None:
    """To the gang's end; one that another attempt has taken over is its to record. Raises what the gang raises."""
    store.write(record | {"failure": IN_FLIGHT}, *file)
    running = asyncio.ensure_future(gang)
    try:
        statuses = await asyncio.shield(running)
        ended(store, file, record, failure=None, exit={status.node: status.state for status in statuses})
    except SupersededError:
        raise
    except asyncio.CancelledError as error:
        # Before the gang is asked: Airflow kills a task that takes more than five seconds to stop.
        ended(store, file, record, failure=str(error) or "stopped on request")
        running.cancel()
        with contextlib.suppress(ScaleoutError):
            await running
        raise
    except Exception as error:
        ended(store, file, record, failure=str(error) if isinstance(error, ScaleoutError) else repr(error))
        raise


def ended(store: SweepStore, file: tuple[str, ...], record: Record, **end: Any) -> None:
    """Adds to the record how its gang ended."""
    store.write(record | end | {"ended_wall_s": time.time()}, *file)
