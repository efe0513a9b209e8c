"""Runs a program that makes data on one node, or its parts on several at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scaleout.errors import GangError, NodeError, SupersededError
from scaleout.remote.gang import Place, run_gang
from scaleout.remote.node import Node
from scaleout.remote.release import release_path
from scaleout.results.store import PREPARE_FILE
from scaleout.steps.held import held
from scaleout.steps.places import described
from scaleout.steps.run_folder import job_of, new_folder
from scaleout.steps.session import Session

ERROR = "error: "  # how these programs begin the one sentence that they end with
Hear = Callable[[str, str], None]


@dataclass
class _Ends:
    """What each node's program said last of its kind: the summary, an object of JSON, and why it failed."""

    hear: Hear
    summaries: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def log(self, node: str, line: str) -> None:
        if line.startswith("{"):
            self.summaries[node] = line
            return
        if line.startswith(ERROR):
            self.errors[node] = line.removeprefix(ERROR)
        self.hear(node, line)


async def run_program(
    session: Session, name: str, program: str, arguments: Mapping[Node, list[str]], hear: Hear
) -> list[dict[str, Any]]:
    """Runs `program`, relative to `training/`, on the nodes at once, each with its arguments; one falls, all stop.

    `hear(node, line)` gets what they say. Gives their summaries, in the order of the nodes. Raises NodeError with the sentence
    of the first that failed, GangError, SupersededError.
    """
    release = session.sweep.release
    assert release is not None
    names = [node.name for node in arguments]
    places = []
    for node_rank, (node, own) in enumerate(arguments.items()):
        path = release_path(node, session.sweep.cluster.remote_root, release)
        command = [node.python, f"{path}/training/{program}", *own]
        job = job_of(session, name, names, node_rank, command, cwd=path, environment={})
        places.append(Place(node, job, path, await new_folder(session, node, name)))
    record = described(places)
    for node_name, command_line in record["commands"].items():
        session.say(f"[{node_name}] $ {command_line}")
    ends = _Ends(hear)
    gang = run_gang(places, ends.log, patience_s=session.sweep.cluster.node_patience_s)
    try:
        await held(session.store, (PREPARE_FILE,), record, gang)
    except SupersededError:
        raise
    except GangError as error:
        fell = next((name for name in ends.errors if str(error).startswith(f"{name}: ")), None)
        if fell is None:
            raise
        raise NodeError(fell, ends.errors[fell]) from None
    return [_summary(ends, node_name, program) for node_name in names]


def _summary(ends: _Ends, node: str, program: str) -> dict[str, Any]:
    try:
        summary: dict[str, Any] = json.loads(ends.summaries[node])
    except (ValueError, KeyError):
        raise NodeError(node, f"{program} ended without its summary") from None
    return summary
