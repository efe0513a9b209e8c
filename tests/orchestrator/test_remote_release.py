"""Releases: the same everywhere, whole or not there, and never quietly altered."""

from __future__ import annotations

import asyncio
import io
import os
import re
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from gangs import until
from private_cluster import PATIENCE_S, PrivateCluster

from scaleout import settings
from scaleout.errors import NodeError
from scaleout.remote import release
from scaleout.remote.node import Answer, Node
from training.wire.release import content_hash, release_files


def releases(node: Node, root: str) -> Path:
    """The folder of releases on the node, which is this machine."""
    return Path(node.path(root)) / "releases"


def snapshot(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_ino, p.stat().st_mtime_ns) for p in folder.rglob("*") if p.is_file()}


def test_the_same_content_gives_the_same_bytes_and_the_same_name() -> None:
    first, name = release.pack(), release.current_release()
    time.sleep(1.05)  # gzip's own time stamp counts in seconds
    assert release.pack() == first
    assert release.current_release() == name
    assert re.fullmatch("[0-9a-f]{16}", name)


def test_an_archive_holds_the_release_and_nothing_of_its_maker() -> None:
    with tarfile.open(fileobj=io.BytesIO(release.pack())) as archive:
        members = archive.getmembers()
    assert [m.name for m in members] == [str(path) for path in release_files(settings.training_dir())]
    assert {(m.uid, m.gid, m.uname, m.gname, m.mtime) for m in members} == {(0, 0, "", "", 0)}


def test_one_changed_byte_or_name_gives_another_name(tmp_path: Path) -> None:
    training = tmp_path / "training"
    training.mkdir()
    (training / "a.py").write_text("x = 1\n")
    name = content_hash(training)
    (training / "a.py").write_text("x = 2\n")
    assert content_hash(training) != name
    (training / "a.py").write_text("x = 1\n")
    assert content_hash(training) == name
    (training / "a.py").rename(training / "b.py")
    assert content_hash(training) != name


def test_caches_and_hidden_files_do_not_count(tmp_path: Path) -> None:
    training = tmp_path / ".hidden parent" / "training"
    (training / "__pycache__").mkdir(parents=True)
    (training / "a.py").write_text("x = 1\n")
    name = content_hash(training)
    (training / "__pycache__" / "a.pyc").write_text("?")
    (training / "stray.pyc").write_text("?")
    (training / ".a.py.swp").write_text("?")
    assert content_hash(training) == name


def test_a_second_deploy_is_a_no_op(cluster: PrivateCluster, root: str) -> None:
    async def twice() -> None:
        name = release.current_release()
        async with cluster.connected("node1") as [node]:
            path = await release.deploy(node, root, name, release.pack())
            assert path == release.release_path(node, root, name) == str(releases(node, root) / name)
            assert content_hash(Path(path) / "training") == name
            before = snapshot(Path(path))
            assert await release.deploy(node, root, name, b"this is never unpacked") == path
            assert snapshot(Path(path)) == before

    asyncio.run(twice())


def test_deploying_under_a_shell_that_greets(
    cluster: PrivateCluster, root: str, login_shell: Callable[[str, str], None]
) -> None:
    login_shell("node1", "echo Welcome; echo Goodbye >&2")

    async def deploy() -> str:
        async with cluster.connected("node1") as [node]:
            return await release.deploy(node, root, release.current_release(), release.pack())

    assert asyncio.run(deploy()).endswith(release.current_release())


@pytest.mark.parametrize("alteration", ["changed", "added", "removed", "its own check"])
def test_an_altered_release_is_refused_by_name(cluster: PrivateCluster, root: str, alteration: str) -> None:
    async def deploy_altered() -> None:
        name, archive = release.current_release(), release.pack()
        async with cluster.connected("node1") as [node]:
            training = Path(await release.deploy(node, root, name, archive)) / "training"
            if alteration == "changed":
                (training / "node" / "caches.py").write_text("print('all is well')\n")
            elif alteration == "added":
                (training / "sitecustomize.py").write_text("")
            elif alteration == "removed":
                (training / "node" / "caches.py").unlink()
            else:
                (training / "node" / "release.py").unlink()
            await release.deploy(node, root, name, archive)

    with pytest.raises(NodeError, match=rf"^node1: .*/{release.current_release()} was altered .*: remove that folder$"):
        asyncio.run(deploy_altered())


def test_what_arrived_incomplete_is_an_error_and_does_not_appear(cluster: PrivateCluster, root: str) -> None:
    archive = release.pack()

    async def deploy(bytes_sent: bytes) -> list[Path]:
        async with cluster.connected("node1") as [node]:
            with pytest.raises(NodeError, match=r"^node1: the release could not be unpacked in .*: .+"):
                await release.deploy(node, root, release.current_release(), bytes_sent)
            return list(releases(node, root).iterdir())

    assert asyncio.run(deploy(archive[: len(archive) // 2])) == []
    assert asyncio.run(deploy(b"no archive")) == []


def test_a_deploy_that_is_cut_off_leaves_nothing_behind(cluster: PrivateCluster, root: str) -> None:
    # Large enough that the unpacking has visibly begun long before the last byte is sent.
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as large:
        large.add(settings.training_dir() / "node", "training/node")
        member = tarfile.TarInfo("training/large")
        member.size = 60_000_000
        large.addfile(member, io.BytesIO(os.urandom(member.size)))
    archive = buffer.getvalue()

    async def cut_off() -> None:
        name = release.current_release()
        async with cluster.connected("node1") as [node]:
            folder = releases(node, root)
            deploying = asyncio.create_task(release.deploy(node, root, name, archive))
            await until(lambda: any(folder.glob(".partial.*/training")))
            cluster.cut_sessions("node1")
            with pytest.raises(NodeError, match=r"^node1: the connection was lost"):
                await deploying
            assert not (folder / name).exists()
            await until(lambda: not list(folder.iterdir()))

    asyncio.run(cut_off())


def test_deploys_at_the_same_time_end_in_one_release(cluster: PrivateCluster, root: str) -> None:
    async def race() -> tuple[set[str], list[str]]:
        name, archive = release.current_release(), release.pack()
        async with cluster.connected(*["node1"] * 6) as nodes:
            paths = await asyncio.gather(*(release.deploy(node, root, name, archive) for node in nodes))
            return set(paths), [path.name for path in releases(nodes[0], root).iterdir()]

    paths, left = asyncio.run(race())
    assert len(paths) == 1
    assert left == [release.current_release()]


def test_a_root_that_cannot_hold_a_release_is_named(cluster: PrivateCluster) -> None:
    async def deploy() -> None:
        async with cluster.connected("node1") as [node]:
            await release.deploy(node, "/dev/null", release.current_release(), release.pack())

    with pytest.raises(NodeError, match=r"^node1: the release could not be unpacked in /dev/null/releases: .*mkdir"):
        asyncio.run(deploy())


def test_a_release_is_closed_to_others(cluster: PrivateCluster, root: str) -> None:
    async def listing() -> Answer:
        async with cluster.connected("node1") as [node]:
            await release.deploy(node, root, release.current_release(), release.pack())
            return await node.run(["stat", "-c", "%a", str(releases(node, root))], timeout_s=PATIENCE_S)

    assert asyncio.run(listing()).stdout == "700\n"
