"""prepare_data: one node prepares the data set of each workload with its own program; every node must see the result."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from scaleout.errors import FleetError, GangError, NodeError, PlanError
from scaleout.remote.fleet import each
from scaleout.remote.gang import Place, run_gang
from scaleout.remote.node import Node
from scaleout.remote.release import release_path
from scaleout.steps.run_folder import job_of, new_folder
from scaleout.steps.session import Session

ANSWER_LIMIT_S = 60.0
ERROR = "error: "  # how these programs begin the one sentence that they end with


async def prepare_data(session: Session) -> None:
    """Sets `ready` when every workload's data is there. Raises NodeError, GangError, FleetError, PlanError."""
    datasets = {}
    async with session.holding(session.node_names) as nodes:
        for workload in session.sweep.workloads:
            datasets[workload] = await _prepare(session, nodes[0], workload)
            await _seen_by_all(session, nodes, workload, datasets[workload]["manifest_sha256"])
    session.store.update(datasets=datasets, ready=True)


async def _prepare(session: Session, node: Node, workload: str) -> dict[str, Any]:
    sweep = session.sweep
    assert sweep.release is not None
    release = release_path(node, sweep.cluster.remote_root, sweep.release)
    command = [
        node.python, f"{release}/training/{sweep.workloads[workload].prepare}",
        "--cityscapes", node.path(sweep.cityscapes),
        "--out", node.path(sweep.prepared_path(workload)),
    ]  # fmt: skip
    folder = await new_folder(session, node, f"prepare-{workload}")
    job = job_of(session, f"prepare-{workload}", [node.name], 0, command, cwd=release, environment={})
    lines: list[str] = []
    try:
        await run_gang([Place(node, job, release, folder)], _both(lines.append, session.say))
    except GangError:
        if lines and lines[-1].startswith(ERROR):
            raise NodeError(node.name, lines[-1].removeprefix(ERROR)) from None
        raise
    try:
        summary: dict[str, Any] = json.loads(lines[-1])
    except (ValueError, IndexError):
        raise NodeError(node.name, f"{sweep.workloads[workload].prepare} ended without its summary") from None
    most_ranks = max(trial.ranks for trial in sweep.trials if trial.workload == workload)
    if summary["images"] < most_ranks:
        raise PlanError(
            f"{sweep.cityscapes} has {summary['images']} training images and the largest trial has {most_ranks} ranks, "
            "each of which needs one: ask for fewer nodes, or give more data"
        )
    done = "nothing had changed" if summary["skipped"] else f"prepared in {summary['seconds']:.1f} s"
    session.say(
        f"{workload}: {summary['images']} training images, {summary['images'] * summary['mean_image_bytes'] / 1e6:.1f} MB to "
        f"read, {summary['mean_image_bytes'] / 1e6:.2f} MB each ({done})"
    )
    return summary


async def _seen_by_all(session: Session, nodes: list[Node], workload: str, sha256: str) -> None:
    async def look(node: Node) -> str:
        path = f"{node.path(session.sweep.prepared_path(workload))}/manifest.json"
        answer = await node.run(["sha256sum", path], timeout_s=ANSWER_LIMIT_S)
        # A backslash before it means that there is one, or a line break, in the path.
        return answer.stdout.removeprefix("\\").split(" ")[0]

    seen = await each("looking for the data", nodes, look)
    blind = [
        NodeError(
            name,
            f"does not see the data in {session.sweep.prepared_path(workload)} that {nodes[0].name} sees: is it mounted?",
        )
        for name, found in seen.items()
        if found != sha256
    ]
    if blind:
        raise FleetError("looking for the data", blind)


def _both(keep: Callable[[str], None], say: Callable[[str], None]) -> Callable[[str, str], None]:
    def log(node: str, line: str) -> None:
        keep(line)
        if not line.startswith("{"):  # the summary is for us
            say(f"[{node}] {line}")

    return log
