"""The page cache of a node: written back, emptied, looked into."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from private_cluster import PrivateCluster

from scaleout.errors import NodeError

# The interpreter may lie where nobody cannot read: what the program needs is imported before.
BECOME_NOBODY = """
import json, os, random, subprocess, sys, time
program = compile(sys.stdin.read(), "caches.py", "exec")
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
exec(program)
"""


def ask(cluster: PrivateCluster, *requests: tuple[str, ...]) -> list[dict[str, Any]]:
    async def all_of_them() -> list[dict[str, Any]]:
        async with cluster.connected("node1") as [node]:
            return [await node.ask("caches", *request, timeout_s=120) for request in requests]

    return asyncio.run(all_of_them())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of 4 KiB, 8 KiB, 16 KiB… so that a sample's size says which files are in it."""
    for k in range(8):
        (tmp_path / f"-{k} é.jpg").write_bytes(os.urandom(4096 << k))
    return tmp_path


def test_dropping_really_empties(cluster: PrivateCluster, folder: Path) -> None:
    assert os.geteuid() == 0, "this test drops the machine's page cache: run it as root"
    size = sum(path.stat().st_size for path in folder.iterdir())
    resident = ("resident", str(folder), "100", "seed")
    before, dropped, after = ask(cluster, resident, ("drop",), resident)
    assert (before["files"], before["bytes"], before["resident_bytes"], before["reason"]) == (8, size, size, None)
    assert (after["files"], after["bytes"], after["resident_bytes"], after["reason"]) == (8, size, 0, None)
    assert dropped["cached_after_bytes"] < dropped["cached_before_bytes"]
    assert dropped["sync_s"] >= 0 and dropped["drop_s"] > 0
    (folder / "-7 é.jpg").read_bytes()
    [again] = ask(cluster, resident)
    assert again["resident_bytes"] == 4096 << 7


def test_syncing_writes_dirty_pages_back(cluster: PrivateCluster) -> None:
    [answer] = ask(cluster, ("sync",))
    assert list(answer) == ["sync_s"] and answer["sync_s"] >= 0


def test_the_sample_is_seeded(cluster: PrivateCluster, folder: Path) -> None:
    seeds = ["a", "a", "b", "c", "d", "e"]
    samples = ask(cluster, *(("resident", str(folder), "3", seed) for seed in seeds))
    assert all(sample["files"] == 3 for sample in samples)
    drawn = [sample["bytes"] for sample in samples]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1


def test_an_empty_or_missing_folder_is_unknown_and_not_cold(cluster: PrivateCluster, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "missing"):
        [answer] = ask(cluster, ("resident", str(tmp_path / folder), "3", "s"))
        assert (answer["files"], answer["resident_bytes"], answer["reason"]) == (0, None, "no files to look at")


def test_a_node_without_the_right_says_so(cluster: PrivateCluster, tmp_path: Path) -> None:
    """As a login that is not root finds it; only root can play it."""
    assert os.geteuid() == 0, "this test becomes another user: run it as root"
    program = Path(__file__).parents[2] / "training" / "node" / "caches.py"

    async def as_nobody(*arguments: str) -> tuple[int, str]:
        async with cluster.connected("node1") as [node]:
            answer = await node.run(
                ["python3", "-c", BECOME_NOBODY, *arguments], stdin=program.read_bytes(), timeout_s=60
            )
            return answer.exit_status, answer.last_words()

    status, words = asyncio.run(as_nobody("drop"))
    assert status == 1
    assert words == "drop: /proc/sys/vm/drop_caches: Permission denied (as uid 65534; dropping caches needs root)"


def test_an_action_that_does_not_exist_is_an_error(cluster: PrivateCluster) -> None:
    with pytest.raises(NodeError, match=r"^node1: "):
        ask(cluster, ("burn",))
