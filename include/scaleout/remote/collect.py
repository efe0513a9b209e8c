"""Brings a run folder of a node to the orchestrator."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from scaleout.errors import NodeError
from scaleout.remote.node import Node

FETCH_LIMIT_S = 600.0


async def fetch_folder(node: Node, remote: str, local: Path) -> bool:
    """Copies the files of a folder on the node into `local`. False when there is no such folder. Raises NodeError."""
    exists = await node.run(["test", "-d", remote], timeout_s=FETCH_LIMIT_S)
    if exists.exit_status != 0:
        return False
    archive = await node.read(["tar", "-C", remote, "-cf", "-", "."], timeout_s=FETCH_LIMIT_S)
    local.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(local, filter="data")
    except tarfile.TarError as error:
        raise NodeError(node.name, f"{remote} could not be fetched whole: {error}") from None
    return True
