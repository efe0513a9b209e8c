"""empty_caches: sync everywhere, flush the array, drop the page cache of every node; then look whether it is so.

Dirty pages go first, so that a later write-back does not fill the array's cache again; the nodes' caches go last, so that
nothing read meanwhile stays.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from scaleout.array.make import array_connection, array_of
from scaleout.errors import NodeError
from scaleout.plan.sweep import Trial
from scaleout.remote.fleet import each
from scaleout.remote.node import Node
from scaleout.results.store import CACHES_FILE
from scaleout.steps.session import Session

SYNC_LIMIT_S = 600.0
SAMPLED_FILES = 32
LASTING_S = 600.0


async def empty_caches(session: Session, trial: Trial, order: int | None = None) -> None:
    """Writes `caches.json` into the folder of the try to come. Raises ArrayError when the array refuses.

    `order`: that of the launch which they are emptied for; without it, of the first one that claims them.
    A node that cannot drop its caches does not stop the trial: what is not proved cold is reported as unproven.
    """
    folder = session.store.next_try(trial.key)
    if trial.cache_mode == "warm":
        session.say("warm: caches stay as they are")
        return
    cluster = session.sweep.cluster
    connection = array_connection(cluster)
    array = array_of(cluster, session.targets[connection] if connection else None)
    problems: list[str] = []
    async with session.holding(trial.node_names) as nodes:
        synced = await each("sync", nodes, lambda node: node.ask("caches", "sync", timeout_s=SYNC_LIMIT_S))
        flush = await array.flush()
        dropped = await each(
            "dropping caches", nodes, _tolerant(problems, lambda n: n.ask("caches", "drop", timeout_s=SYNC_LIMIT_S))
        )
        resident = await each("reading residency", nodes, _tolerant(problems, lambda n: _residency(session, n, trial)))
    record = {
        "synced": synced,
        "flush": asdict(flush),
        "dropped": dropped,
        "resident": resident,
        "problems": problems,
        "ended_wall_s": time.time(),
        "order": order,
    }
    session.store.write(record, folder, CACHES_FILE)
    session.say(_told(record))


async def claim_emptied(session: Session, trial: Trial, folder: str, order: int) -> None:
    """Makes sure that the caches were emptied for this try and this order, and lately: else others have read meanwhile.

    A launch that failed before it started anything leaves the record of its caches to whoever orders the next one.
    """
    record = session.store.read(folder, CACHES_FILE)
    if (
        record is None
        or record["order"] not in (None, order)
        or not 0 <= time.time() - record["ended_wall_s"] <= LASTING_S
    ):
        await empty_caches(session, trial, order)
    else:
        session.store.write(record | {"order": order}, folder, CACHES_FILE)


async def _residency(session: Session, node: Node, trial: Trial) -> dict[str, Any]:
    """The sum of a sample of each folder that the trial will read, and under `folders` each sample: masks are few bytes
    beside images, and would be lost in the sum."""
    data, workload = session.sweep.prepared_path(trial.workload), session.sweep.workloads[trial.workload]
    seed = f"{session.sweep.slug}-{trial.round}-{trial.nodes}-{node.name}"
    samples: dict[str, dict[str, Any]] = {}
    for folder in workload.read_folders:
        path = f"{node.path(data)}/{folder}"
        samples[folder] = await node.ask("caches", "resident", path, str(SAMPLED_FILES), seed, timeout_s=SYNC_LIMIT_S)
    return summed(samples)


def summed(samples: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Samples by folder, and their sum; resident bytes are null where those of a folder are not known."""
    resident = [sample["resident_bytes"] for sample in samples.values()]
    return {
        "files": sum(sample["files"] for sample in samples.values()),
        "bytes": sum(sample["bytes"] for sample in samples.values()),
        "resident_bytes": None if None in resident else sum(resident),
        "reason": next((sample["reason"] for sample in samples.values() if sample["reason"]), None),
        "folders": samples,
    }


def _tolerant(
    problems: list[str], do: Callable[[Node], Awaitable[dict[str, Any]]]
) -> Callable[[Node], Awaitable[dict[str, Any] | None]]:
    """Null for a node that could not do it; why is added to `problems`."""

    async def tried(node: Node) -> dict[str, Any] | None:
        try:
            return await do(node)
        except NodeError as error:
            problems.append(str(error))
            return None

    return tried


def _told(record: dict[str, Any]) -> str:
    flush = record["flush"]
    lines = [
        f"array: {'flushed' if flush['complete'] else 'NOT flushed'} in {flush['seconds']:.1f} s"
        f" ({', '.join(flush['acknowledged']) or flush['reason']})"
    ]
    for node, drop in record["dropped"].items():
        resident = record["resident"][node]
        if drop:
            lines.append(
                f"{node}: page cache {drop['cached_before_bytes'] / 1e6:.0f} MB before, {drop['cached_after_bytes'] / 1e6:.0f} MB "
                f"after, in {drop['drop_s']:.2f} s"
            )
        if resident and resident["resident_bytes"] is not None:
            lines.append(
                f"{node}: {resident['resident_bytes']} of {resident['bytes']} bytes of {resident['files']} sampled files in memory"
            )
    return "\n".join([*lines, *record["problems"]])
