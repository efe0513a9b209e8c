"""launch: the gang of one trial, from first connection to last exit status."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from scaleout.errors import NodeError, ScaleoutError
from scaleout.plan.commands import Rendezvous, node_command, shown
from scaleout.plan.sweep import Trial
from scaleout.remote.fleet import each
from scaleout.remote.gang import Place, run_gang
from scaleout.remote.node import Node
from scaleout.remote.release import release_path
from scaleout.results.store import LAUNCH_FILE
from scaleout.steps.run_folder import job_of, run_folder
from scaleout.steps.session import Session

ANSWER_LIMIT_S = 30.0
# Estimates are rough, and a trial that hangs must end some day.
LEAST_LIMIT_S, LIMIT_FACTOR = 1800.0, 10.0
IN_FLIGHT = "it was launched and did not report its end"


async def launch(session: Session, trial: Trial) -> None:
    """Runs the trial; `launch.json` says what was run and how it ended. Raises GangError, FleetError."""
    store, folder = session.store, session.store.next_try(trial.key)
    async with session.holding(trial.node_names) as nodes:
        places = await _places(session, trial, folder, nodes)
        record: dict[str, Any] = {
            "commands": {p.node.name: shown(p.job.command, p.job.cwd, p.job.environment) for p in places},
            "started_wall_s": time.time(),
            "failure": IN_FLIGHT,
        }
        store.write(record, folder, LAUNCH_FILE)
        for name, command in record["commands"].items():
            session.say(f"[{name}] $ {command}")
        try:
            statuses = await run_gang(places, lambda node, line: session.say(f"[{node}] {line}"))
            record |= {"failure": None, "exit": {s.node: s.state for s in statuses}}
        except ScaleoutError as error:
            record |= {"failure": str(error)}
            raise
        except asyncio.CancelledError:
            record |= {"failure": "stopped on request"}
            raise
        finally:
            store.write(record | {"ended_wall_s": time.time()}, folder, LAUNCH_FILE)


async def _places(session: Session, trial: Trial, folder: str, nodes: list[Node]) -> list[Place]:
    sweep, workload = session.sweep, session.sweep.workloads[trial.workload]
    assert sweep.release is not None
    rendezvous = await _rendezvous(session, nodes[0])
    interfaces = await each("choosing the network interface", nodes, lambda node: _interface(session, node, rendezvous))
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
        interface = interfaces[node.name]
        environment = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface, **sweep.cluster.environment}
        job = job_of(
            session, folder, trial.node_names, node_rank, command, cwd=cwd, environment=environment,
            timeout_s=LEAST_LIMIT_S + LIMIT_FACTOR * trial.estimated_s,
        )  # fmt: skip
        places.append(Place(node, job, release, run))
    return places


async def _rendezvous(session: Session, first: Node) -> Rendezvous:
    """The first node's address, and a port that is free on it now; each launch asks anew."""
    by_name = {node.name: node for node in session.sweep.cluster.nodes}
    answer = await first.ask("network", "free-port", timeout_s=ANSWER_LIMIT_S)
    return Rendezvous(by_name[first.name].address or first.host, answer["port"])


async def _interface(session: Session, node: Node, rendezvous: Rendezvous) -> str:
    """The cluster file's network interface, else the one that leads to the first node."""
    if session.sweep.cluster.network_interface:
        return session.sweep.cluster.network_interface
    answer = await node.ask("network", "interface", rendezvous.address, timeout_s=ANSWER_LIMIT_S)
    if answer["interface"] is None:
        raise NodeError(
            node.name,
            f"no interface leads to {rendezvous.address}: name one as network_interface in the cluster's file",
        )
    return str(answer["interface"])
