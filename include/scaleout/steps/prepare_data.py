"""prepare_data: each workload's data set, from Cityscapes to the size that the sweep wants; every node must see the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaleout.errors import PlanError
from scaleout.plan.dataset import settings_of
from scaleout.remote.node import Node
from scaleout.steps.data_program import run_program
from scaleout.steps.inflate_data import inflate
from scaleout.steps.inflation_log import duration_text
from scaleout.steps.seen import seen_alike
from scaleout.steps.session import Session
from scaleout.steps.settle import settle_preparation

MANIFEST_FILE = "manifest.json"


async def prepare_data(session: Session) -> None:
    """Sets `ready` when every workload's data is there. Raises NodeError, GangError, FleetError, PlanError."""
    await settle_preparation(session)
    datasets = {}
    async with session.holding(session.node_names) as nodes:
        for workload in session.sweep.workloads:
            datasets[workload] = await _data_set(session, nodes, workload)
    session.store.update(datasets=datasets, ready=True)


async def _data_set(session: Session, nodes: Sequence[Node], workload: str) -> dict[str, Any]:
    """What results record of the data set."""
    sweep = session.sweep
    factor, path = sweep.factor(workload), sweep.prepared_path(workload)
    base = summary = await _frames(session, nodes[0], workload)
    await seen_alike(session, nodes, f"{sweep.base_path(workload)}/{MANIFEST_FILE}", base["manifest_sha256"])
    if factor > 1:
        summary = await inflate(session, nodes, workload)
        summary |= {"warnings": base["warnings"] + summary["warnings"]}
        await seen_alike(session, nodes, f"{path}/{MANIFEST_FILE}", summary["manifest_sha256"])
    _check_ranks(session, workload, summary["images"])
    session.say(_told(workload, summary))
    settings = settings_of(sweep.workloads[workload].inflation, factor)
    return {**summary, **settings, "path": path, "base_manifest_sha256": base["manifest_sha256"]}


async def _frames(session: Session, node: Node, workload: str) -> dict[str, Any]:
    """The frames themselves as the workload reads them."""
    sweep = session.sweep
    paths = ["--cityscapes", node.path(sweep.cityscapes), "--out", node.path(sweep.base_path(workload))]
    program = sweep.workloads[workload].prepare
    return (await run_program(session, f"prepare-{workload}", program, {node: paths}, session.hear))[0]


def _check_ranks(session: Session, workload: str, images: int) -> None:
    sweep = session.sweep
    most_ranks = max(trial.ranks for trial in sweep.trials if trial.workload == workload)
    if images < most_ranks:
        raise PlanError(
            f"{sweep.cityscapes} has {images} training images and the largest trial has {most_ranks} ranks, each of which needs "
            "one: ask for fewer nodes, or give more data"
        )


def _told(workload: str, summary: dict[str, Any]) -> str:
    done = "nothing had changed" if summary["skipped"] else f"prepared in {duration_text(summary['seconds'])}"
    total_bytes, mean_bytes = summary["images"] * summary["mean_image_bytes"], summary["mean_image_bytes"]
    return (
        f"{workload}: {summary['images']:,} training images, {total_bytes / 1e6:,.1f} MB to read, {mean_bytes / 1e6:.2f} MB each "
        f"({done})"
    )
