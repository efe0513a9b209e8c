"""The places of a trial's gang: made for a new try, or rebuilt from what the last one's `launch.json` holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaleout.plan.commands import LAUNCHER_ENVIRONMENT, Rendezvous, node_command, shown
from scaleout.plan.sweep import Trial
from scaleout.remote.gang import Place
from scaleout.remote.node import Node
from scaleout.remote.release import release_path
from scaleout.steps.interfaces import choose_interfaces, environment_of
from scaleout.steps.run_folder import job_of, run_folder
from scaleout.steps.session import Session
from training.wire.job import Job
from training.wire.schema import from_dict, to_dict

ANSWER_LIMIT_S = 30.0


async def new_places(session: Session, trial: Trial, folder: str, nodes: Sequence[Node]) -> list[Place]:
    """With a rendezvous of their own. Raises NodeError, FleetError."""
    sweep, workload = session.sweep, session.sweep.workloads[trial.workload]
    assert sweep.release is not None
    rendezvous = await _rendezvous(session, nodes[0])
    interfaces = await choose_interfaces(session, nodes, rendezvous.address)
    places = []
    for node_rank, node in enumerate(nodes):
        release = release_path(node, sweep.cluster.remote_root, sweep.release)
        run = run_folder(session, node, folder)
        command = node_command(
            trial=trial,
            workload=workload,
            node_rank=node_rank,
            rendezvous=rendezvous,
            python=node.python,
            data=node.path(sweep.prepared_path(trial.workload)),
            events=run,
        )
        cwd = f"{release}/training/{workload.program.rsplit('/', 1)[0]}"
        environment = {
            **LAUNCHER_ENVIRONMENT,
            **environment_of(interfaces[node.name]),
            **sweep.cluster.environment,
        }
        job = job_of(
            session, folder, trial.node_names, node_rank, command, cwd=cwd, environment=environment,
            timeout_s=trial.limit_s,
        )  # fmt: skip
        places.append(Place(node, job, release, run))
    return places


def described(places: Sequence[Place]) -> dict[str, Any]:
    """What `launch.json` keeps of the places, by node."""
    return {
        "commands": {p.node.name: shown(p.job.command, p.job.cwd, p.job.environment) for p in places},
        "jobs": {p.node.name: to_dict(p.job) for p in places},
        "release_paths": {p.node.name: p.release_path for p in places},
        "folders": {p.node.name: p.folder for p in places},
    }


def rebuilt(record: dict[str, Any], nodes: Sequence[Node]) -> list[Place]:
    """The places that were described, on these nodes."""
    return [
        Place(
            node,
            from_dict(Job, record["jobs"][node.name], node.name),
            record["release_paths"][node.name],
            record["folders"][node.name],
        )
        for node in nodes
    ]


async def _rendezvous(session: Session, first: Node) -> Rendezvous:
    """The first node's address, and a port that is free on it now; each launch asks anew."""
    by_name = {node.name: node for node in session.sweep.cluster.nodes}
    answer = await first.ask("network", "free-port", timeout_s=ANSWER_LIMIT_S)
    return Rendezvous(by_name[first.name].address or first.host, answer["port"])
