"""Brings a workload's data set to its size: the first node plans, all nodes make, the first node finishes.

What is whole already is not made again, so a preparation that ended early goes on from where it was.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from scaleout.config.inflation import Inflation
from scaleout.errors import GangError, NodeError, SupersededError
from scaleout.plan.dataset import Phase, inflate_flags, phase_flags
from scaleout.remote.node import Node
from scaleout.steps.data_program import Hear, run_program
from scaleout.steps.inflation_log import InflationLog, duration_text
from scaleout.steps.seen import seen_alike
from scaleout.steps.session import Session

PLAN_FILE = "plan.json"


async def inflate(session: Session, nodes: Sequence[Node], workload: str) -> dict[str, Any]:
    """The summary of the data set, `skipped` where it was there, else with the seconds of all phases.

    Raises NodeError, GangError, FleetError.
    """
    began_s = time.monotonic()
    plan = (await _phase(session, "plan", nodes[:1], workload, session.hear))[0]
    if plan["skipped"]:
        return plan
    if plan["left_shards"]:
        await _make(session, nodes, workload, plan)
    finished = (await _phase(session, "finish", nodes[:1], workload, session.hear))[0]
    return finished | {"seconds": time.monotonic() - began_s}


async def _make(session: Session, nodes: Sequence[Node], workload: str, plan: Mapping[str, Any]) -> None:
    session.say(
        f"{workload}: {plan['left_images']:,} of {plan['images']:,} images are to be made, {plan['left_bytes'] / 1e9:.1f} GB, on "
        f"{', '.join(node.name for node in nodes)}"
    )
    await seen_alike(session, nodes, f"{session.sweep.prepared_path(workload)}/{PLAN_FILE}")
    log = InflationLog(workload, plan["images"], plan["left_images"], session.say)
    try:
        made = await _phase(session, "make", nodes, workload, log.hear)
    except SupersededError:
        raise
    except NodeError as error:
        raise NodeError(error.node, f"{str(error).removeprefix(f'{error.node}: ')}; {log.standing()}") from None
    except GangError as error:
        first, *tail = str(error).split("\n")
        raise GangError(
            "\n".join([f"{first.removesuffix('; the end of its log:')}; {log.standing()}", *tail])
        ) from None
    except asyncio.CancelledError:
        session.say(log.standing())
        raise
    log.tell()
    seconds = max(part["seconds"] for part in made)
    images, made_bytes = (sum(part[key] for part in made) for key in ("images", "bytes"))
    rates = f": {images / seconds:.1f} images/s, {made_bytes / 1e6 / seconds:.1f} MB/s" if seconds else ""
    session.say(f"{workload}: {images:,} images, {made_bytes / 1e9:.2f} GB, made in {duration_text(seconds)}{rates}")


async def _phase(
    session: Session, phase: Phase, nodes: Sequence[Node], workload: str, hear: Hear
) -> list[dict[str, Any]]:
    inflation = _inflation(session, workload)
    arguments: Mapping[Node, list[str]] = {
        node: _flags(session, node, workload) + phase_flags(phase, node_rank, len(nodes))
        for node_rank, node in enumerate(nodes)
    }
    return await run_program(session, f"inflate-{workload}-{phase}", inflation.program, arguments, hear)


def _flags(session: Session, node: Node, workload: str) -> list[str]:
    sweep = session.sweep
    source, out = node.path(sweep.base_path(workload)), node.path(sweep.prepared_path(workload))
    return inflate_flags(_inflation(session, workload), sweep.factor(workload), source, out)


def _inflation(session: Session, workload: str) -> Inflation:
    inflation = session.sweep.workloads[workload].inflation
    assert inflation is not None, "a plan with a factor has its inflation"
    return inflation
