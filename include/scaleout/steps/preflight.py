"""preflight: every node and the array are asked what they are, and refused before anything runs when they will not do."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from scaleout.array.make import array_connection, array_of
from scaleout.errors import FleetError, NodeError
from scaleout.remote.fleet import each
from scaleout.remote.node import Node
from scaleout.results.store import PREFLIGHT_FILE
from scaleout.steps.session import Session

ANSWER_LIMIT_S = 60.0
LEAST_FREE_BYTES = 10**9
NEEDED = ("torch", "torchvision", "cityscapesscripts", "deflate", "msgspec", "psutil", "pycocotools", "zlib-ng")
DALI = "nvidia-dali-cuda"


async def preflight(session: Session) -> None:
    """Writes `preflight.json`. Raises FleetError and ArrayError."""
    cluster = session.sweep.cluster

    async def ask(node: Node) -> dict[str, Any]:
        folders = [node.path(p) for p in (cluster.remote_root, session.sweep.cityscapes, cluster.prepared)]
        return await node.ask("preflight", *folders, timeout_s=ANSWER_LIMIT_S)

    async with session.holding(session.node_names) as nodes:
        answers = await each("preflight", nodes, ask)
    session.say(table(answers))
    problems = [
        NodeError(name, problem) for name, answer in answers.items() for problem in _problems(session, name, answer)
    ]
    if problems:
        raise FleetError("preflight", problems)
    connection = array_connection(cluster)
    array = array_of(cluster, session.targets[connection] if connection else None)
    answered = await array.check()
    session.say(f"array ({cluster.array.kind}): {answered}")
    described = {**cluster.array.model_dump(), **answered}
    session.store.write({"nodes": answers, "array": described, "claim": asdict(session.claim)}, PREFLIGHT_FILE)


def table(answers: dict[str, dict[str, Any]]) -> str:
    """One line per node."""
    lines = [f"{'node':<12}{'cpus':>5}{'memory GB':>11}{'GPUs':>6}{'free GB':>9}  {'data on':<8} {'torch':<12} kernel"]
    for name, answer in answers.items():
        mount = answer["data_mount"]
        lines.append(
            f"{name:<12}{answer['cpus']:>5}{answer['memory_bytes'] / 1e9:>11.1f}{len(answer['gpus']):>6}"
            f"{answer['root_free_bytes'] / 1e9:>9.1f}  {mount['type'] if mount else '?':<8} "
            f"{answer['versions'].get('torch', 'none'):<12} {answer['kernel']}"
        )
    return "\n".join(lines)


def _problems(session: Session, name: str, answer: dict[str, Any]) -> list[str]:
    cluster, found = session.sweep.cluster, []
    lacking = [package for package in NEEDED if package not in answer["versions"]]
    if not any(package.startswith(DALI) for package in answer["versions"]):
        lacking.append(f"{DALI}*")
    if lacking:
        found.append(
            f"{answer['executable']} has no {', '.join(lacking)}: install requirements/node.lock there, or name the training "
            f"environment's interpreter as `python` in clusters/{cluster.name}.yaml"
        )
    wanted = max(trial.processes_per_node for trial in session.sweep.trials)
    if cluster.device == "cuda" and len(answer["gpus"]) < wanted:
        found.append(f"it has {len(answer['gpus'])} GPUs and {wanted} processes per node are asked for")
    if answer["root_free_bytes"] < LEAST_FREE_BYTES:
        found.append(
            f"{cluster.remote_root} has {answer['root_free_bytes'] / 1e9:.2f} GB free and 1 GB is needed: free some"
        )
    if name == session.node_names[0] and not answer["source_exists"]:
        found.append(f"no data set folder {session.sweep.cityscapes}: mount it, or name another as `cityscapes`")
    return found
