"""Whether all nodes see a file of the NAS alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from scaleout.errors import FleetError, NodeError
from scaleout.remote.fleet import each
from scaleout.remote.node import Node
from scaleout.steps.session import Session

ANSWER_LIMIT_S = 60.0
PAUSE_S = 1.0
# Listing the folder has an NFS client ask the server anew; it may believe for half a minute that a file is not there.
_LOOK = 'ls -a "${1%/*}" >/dev/null 2>&1; exec sha256sum "$1"'


async def seen_alike(session: Session, nodes: Sequence[Node], path: str, sha256: str | None = None) -> None:
    """Waits until every node sees the file as `sha256` (null: as the first node sees it), for the cluster's patience at most.

    Raises FleetError that names the nodes that do not, NodeError where the first node does not see it at all.
    """
    expected = sha256 or await _digest(nodes[0], path)
    if expected is None:
        raise NodeError(nodes[0].name, f"{path}: cannot be read")
    deadline = time.monotonic() + session.sweep.cluster.node_patience_s
    while True:
        found = await each("looking for the data", nodes, lambda node: _digest(node, path))
        blind = [name for name, digest in found.items() if digest != expected]
        if not blind:
            return
        if time.monotonic() > deadline:
            raise FleetError("looking for the data", [_blind(name, nodes[0].name, path) for name in blind])
        await asyncio.sleep(PAUSE_S)


async def _digest(node: Node, path: str) -> str | None:
    answer = await node.run(["sh", "-c", _LOOK, "sh", node.path(path)], timeout_s=ANSWER_LIMIT_S)
    # A backslash before it means that there is one, or a line break, in the path.
    return answer.stdout.removeprefix("\\").split(" ")[0] if answer.exit_status == 0 else None


def _blind(node: str, first: str, path: str) -> NodeError:
    return NodeError(node, f"does not see {path} as {first} sees it: is it mounted?")
