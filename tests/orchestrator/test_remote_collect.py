"""Bringing run folders home."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from private_cluster import PrivateCluster

from scaleout.errors import NodeError
from scaleout.remote.collect import fetch_folder


def fetch(cluster: PrivateCluster, remote: Path, local: Path) -> bool:
    async def once() -> bool:
        async with cluster.connected("node1") as [node]:
            return await fetch_folder(node, str(remote), local)

    return asyncio.run(once())


def test_a_folder_arrives_byte_for_byte(cluster: PrivateCluster, tmp_path: Path) -> None:
    remote = cluster.home("node1") / "it's a $(folder)"
    (remote / "rank0").mkdir(parents=True)
    contents = {
        "log": os.urandom(3_000_000),
        "rank0/events.jsonl": b'{"a": "\xc3\xa9"}\n',
        "empty": b"",
        "-f é\n": b"\0",
    }
    for name, content in contents.items():
        (remote / name).write_bytes(content)
    local = tmp_path / "results" / "node1"
    assert fetch(cluster, remote, local)
    fetched = {str(path.relative_to(local)): path.read_bytes() for path in local.rglob("*") if path.is_file()}
    assert fetched == contents


def test_where_there_is_no_folder_nothing_is_made(cluster: PrivateCluster, tmp_path: Path) -> None:
    assert not fetch(cluster, cluster.home("node1") / "nothing", tmp_path / "local")
    assert not (tmp_path / "local").exists()


def test_a_node_cannot_write_outside_the_folder(cluster: PrivateCluster, tmp_path: Path) -> None:
    remote = cluster.home("node1") / "hostile"
    remote.mkdir()
    (remote / "way out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NodeError, match=r"^node1: .*hostile could not be fetched whole: .+"):
        fetch(cluster, remote, tmp_path / "local")


def test_a_session_that_is_cut_is_an_error(cluster: PrivateCluster, tmp_path: Path) -> None:
    remote = cluster.home("node1") / "slow"
    remote.mkdir()
    os.mkfifo(remote / "pipe")
    (remote / "large").write_bytes(bytes(50_000_000))

    async def cut() -> None:
        async with cluster.connected("node1") as [node]:
            fetching = asyncio.create_task(fetch_folder(node, str(remote), tmp_path / "local"))
            await asyncio.sleep(0.1)
            cluster.cut_sessions("node1")
            await fetching

    with pytest.raises(NodeError, match=r"^node1: the connection was lost"):
        asyncio.run(cut())
    assert not (tmp_path / "local").exists()
