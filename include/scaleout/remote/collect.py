"""Brings a run folder of a node to the orchestrator."""

from __future__ import annotations

import io
import shutil
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
            for member in files:
                _extract(files, member, local)
    except tarfile.TarError as error:
        raise NodeError(node.name, f"{remote} could not be fetched whole: {error}") from None
    return True


def _extract(files: tarfile.TarFile, member: tarfile.TarInfo, local: Path) -> None:
    """Writes a regular file or a folder below `local`, and refuses all else. (`extractall(filter=)` needs Python 3.11.4.)"""
    target = (local / member.name).resolve()
    if not (member.isdir() or member.isreg()) or not target.is_relative_to(local.resolve()):
        raise tarfile.TarError(f"{member.name!r} is no plain file or folder in it")
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    content = files.extractfile(member)
    assert content is not None
    with content, target.open("wb") as out:
        shutil.copyfileobj(content, out)
