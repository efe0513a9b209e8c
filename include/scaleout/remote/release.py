"""Copies `training/` to the nodes as a release named by its content hash."""

from __future__ import annotations

import gzip
import io
import tarfile

from scaleout import settings
from scaleout.errors import NodeError
from scaleout.remote.node import Node
from training.wire.release import content_hash, release_files

UPLOAD_LIMIT_S = 300.0

# The folder appears under its name only when it is whole; a second upload of the same release does nothing.
_UNPACK = """
set -e
umask 077
mkdir -p "$1"
if [ -d "$1/$2" ]; then cat >/dev/null; exit 0; fi
partial=$(mktemp -d "$1/.partial.XXXXXX")
trap 'rm -rf "$partial"' EXIT
tar -xzf - -C "$partial"
mv -T "$partial" "$1/$2" 2>/dev/null || [ -d "$1/$2" ]
"""


def current_release() -> str:
    """The content hash of this checkout's `training/`."""
    return content_hash(settings.training_dir())


def release_path(node: Node, remote_root: str, release: str) -> str:
    """Where a release lies on a node; `training/` is inside."""
    return f"{node.path(remote_root)}/releases/{release}"


def pack() -> bytes:
    """The release as a gzipped tar archive, the same bytes for the same content."""
    buffer = io.BytesIO()
    training = settings.training_dir()
    # gzip, too, would stamp the time.
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for relative in release_files(training):
            info = archive.gettarinfo(str(training.parent / relative), arcname=relative.as_posix())
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            with (training.parent / relative).open("rb") as content:
                archive.addfile(info, content)
    return buffer.getvalue()


async def deploy(node: Node, remote_root: str, release: str, archive: bytes) -> str:
    """Brings a release to a node and gives its path there. Raises NodeError when it is not, byte for byte, ours."""
    releases = f"{node.path(remote_root)}/releases"
    command = ["sh", "-c", _UNPACK, "sh", releases, release]
    answer = await node.run(command, stdin=archive, timeout_s=UPLOAD_LIMIT_S)
    if answer.exit_status != 0:
        raise NodeError(node.name, f"the release could not be unpacked in {releases}: {answer.last_words()}")
    path = release_path(node, remote_root, release)
    check = await node.run([node.python, f"{path}/training/node/release.py"], timeout_s=UPLOAD_LIMIT_S)
    found = check.stdout.strip()
    if check.exit_status != 0 or found != release:
        raise NodeError(
            node.name, f"{path} was altered (its content is {found or check.last_words()}): remove that folder"
        )
    return path
