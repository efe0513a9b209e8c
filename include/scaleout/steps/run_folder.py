"""Run folders on the nodes, and the jobs that run in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scaleout.errors import NodeError
from scaleout.remote.node import Node
from scaleout.steps.session import Session
from training.wire.job import Job

TELEMETRY_INTERVAL_S = 1.0
ANSWER_LIMIT_S = 60.0


def run_folder(session: Session, node: Node, trial_folder: str) -> str:
    """`<remote root>/runs/<run slug>/<trial>/<node>`, absolute on the node."""
    return f"{node.path(session.sweep.cluster.remote_root)}/runs/{session.sweep.slug}/{trial_folder}/{node.name}"


async def new_folder(session: Session, node: Node, name: str) -> str:
    """The first free run folder `<name>-t<k>`: what an earlier try left stays."""
    base = run_folder(session, node, name)
    parent, own = base.rsplit("/", 1)
    question = 'k=1; while [ -e "$1-t$k" ]; do k=$((k+1)); done; printf "%s\\n" "$k"'
    answer = await node.run(["sh", "-c", question, "sh", parent], timeout_s=ANSWER_LIMIT_S)
    attempt = answer.stdout.strip().splitlines()[-1:]
    if answer.exit_status != 0 or not attempt or not attempt[0].isdigit():
        raise NodeError(node.name, f"{parent}: cannot be looked at: {answer.last_words()}")
    return f"{parent}-t{attempt[0]}/{own}"


def job_of(
    session: Session,
    trial_folder: str,
    nodes: Sequence[str],
    node_rank: int,
    command: list[str],
    *,
    cwd: str,
    environment: Mapping[str, str],
    timeout_s: float | None = None,
) -> Job:
    """The job of one node, with the cluster's lease and grace."""
    sweep = session.sweep
    assert sweep.release is not None
    return Job(
        run_id=sweep.run_id,
        trial=trial_folder,
        node=nodes[node_rank],
        node_rank=node_rank,
        nodes=list(nodes),
        release=sweep.release,
        command=command,
        cwd=cwd,
        environment={"PYTHONUNBUFFERED": "1", **environment},
        lease_s=sweep.lease_s,
        grace_s=sweep.cluster.grace_s,
        timeout_s=timeout_s,
        telemetry_interval_s=TELEMETRY_INTERVAL_S,
    )
