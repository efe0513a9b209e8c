"""One command on an array over SSH."""

from __future__ import annotations

from scaleout.errors import ArrayError, NodeError
from scaleout.remote.node import Answer, connect
from scaleout.remote.target import Target


async def run_on_array(target: Target, command: list[str], *, connect_timeout_s: float, timeout_s: float) -> Answer:
    """Connects, runs the command to its end and closes. Raises ArrayError."""
    try:
        node = await connect(target, "python3", connect_timeout_s)
        try:
            return await node.run(command, timeout_s=timeout_s)
        finally:
            node.connection.close()
    except NodeError as error:
        raise ArrayError(f"array {error}") from None
