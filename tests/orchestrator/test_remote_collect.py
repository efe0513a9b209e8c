"""Bringing run folders home."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gangs import until
from private_cluster import PrivateCluster
from trials import CHECKOUT, environment

from scaleout.errors import NodeError, ScaleoutError
from scaleout.remote.collect import fetch_folder

LARGE_BYTES = 300_000_000
MOST_MEMORY_BYTES = 60_000_000


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
        "not UTF-8 \udcff": b"\xff",
        "x" * 200: b"a name that a tar header cannot hold",
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


def slow_folder(cluster: PrivateCluster, name: str) -> Path:
    """Enough on node1 for a fetch that can be caught under way."""
    remote = cluster.home("node1") / name
    remote.mkdir()
    (remote / "a first file").write_bytes(b"whole")
    (remote / "large").write_bytes(os.urandom(1_000_000) * 100)
    return remote


def left_beside(local: Path) -> list[str]:
    return [path.name for path in local.parent.iterdir()]


@pytest.fixture
def local(tmp_path: Path) -> Path:
    folder = tmp_path / "results" / "node1"
    folder.parent.mkdir()
    return folder


def test_a_session_that_is_cut_is_an_error_and_leaves_nothing(cluster: PrivateCluster, local: Path) -> None:
    remote = slow_folder(cluster, "cut")

    async def cut() -> None:
        async with cluster.connected("node1") as [node]:
            fetching = asyncio.create_task(fetch_folder(node, str(remote), local))
            await until((local.parent / ".node1.partial" / "large").exists)
            cluster.cut_sessions("node1")
            await fetching

    with pytest.raises(NodeError, match=r"^node1: the connection was lost"):
        asyncio.run(cut())
    assert left_beside(local) == []


def test_stopped_under_way_it_ends_at_once_and_leaves_what_was_there(cluster: PrivateCluster, local: Path) -> None:
    remote = slow_folder(cluster, "stopped")
    local.mkdir()
    (local / "from before").touch()

    async def stop() -> None:
        async with cluster.connected("node1") as [node]:
            fetching = asyncio.create_task(fetch_folder(node, str(remote), local))
            await until((local.parent / ".node1.partial" / "large").exists)
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching

    asyncio.run(stop())
    assert left_beside(local) == ["node1"]
    assert [path.name for path in local.iterdir()] == ["from before"]


def test_fetched_again_a_folder_is_as_it_is_on_the_node_now(cluster: PrivateCluster, local: Path) -> None:
    remote = cluster.home("node1") / "twice"
    remote.mkdir()
    (remote / "old").write_bytes(b"1")
    (local.parent / ".node1.partial").mkdir()
    (local.parent / ".node1.partial" / "of one that was killed").touch()
    assert fetch(cluster, remote, local)
    (remote / "old").rename(remote / "new")
    assert fetch(cluster, remote, local)
    assert left_beside(local) == ["node1"]
    assert [path.name for path in local.iterdir()] == ["new"]


@pytest.fixture
def tar_of_node3(cluster: PrivateCluster) -> Iterator[Path]:
    """A program of this test's own in place of node3's `tar`, and something to fetch in its `~/results`."""
    results = cluster.home("node3") / "results"
    results.mkdir(exist_ok=True)
    (results / "content").write_bytes(os.urandom(40_000))
    program = cluster.home("node3") / "bin" / "tar"
    program.parent.mkdir()
    program.touch(mode=0o755)
    login = cluster.home("node3") / ".bashrc"
    login.write_text("PATH=~/bin:$PATH\necho welcome to node3\n")
    yield program
    login.unlink()
    program.unlink()
    program.parent.rmdir()


def fetch_from_node3(cluster: PrivateCluster, local: Path, silence_s: float) -> None:
    async def once() -> None:
        async with cluster.connected("node3") as [node]:
            await fetch_folder(node, f"{node.home}/results", local, silence_s=silence_s)

    asyncio.run(once())


SLOWLY = """#!/usr/bin/env python3
import subprocess, sys, time
archive = subprocess.run(["/bin/tar", *sys.argv[1:]], stdout=subprocess.PIPE).stdout
for part in range(8):
    time.sleep(0.25)
    sys.stdout.buffer.write(archive[part * 4096 : (part + 1) * 4096 if part < 7 else None])
    sys.stdout.flush()
"""


def test_a_slow_node_has_time_as_long_as_something_comes(
    cluster: PrivateCluster, tar_of_node3: Path, local: Path
) -> None:
    tar_of_node3.write_text(SLOWLY)
    started = time.monotonic()
    fetch_from_node3(cluster, local, silence_s=1.0)
    assert time.monotonic() - started > 1.5
    assert (local / "content").read_bytes() == (cluster.home("node3") / "results" / "content").read_bytes()


def test_a_node_that_falls_silent_is_an_error(cluster: PrivateCluster, tar_of_node3: Path, local: Path) -> None:
    tar_of_node3.write_text('#!/bin/sh\n/bin/tar "$@" | head -c 6000\nexec sleep 600\n')
    with pytest.raises(NodeError, match=r"^node3: .* could not be fetched whole: nothing came for 0\.5 s$"):
        fetch_from_node3(cluster, local, silence_s=0.5)
    assert left_beside(local) == []


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ('/bin/tar "$@" | head -c 6000', "unexpected end of data"),
        ('/bin/tar "$@" | head -c 6000; echo the disk is gone >&2; exit 2', "the disk is gone"),
        ('/bin/tar "$@"; kill -9 $$', "tar ended with exit status 137"),
        ("exit 127", "tar ended with exit status 127"),
        ("yes complaint | head -c 9000000 >&2; exit 2", "complaint"),
    ],
)
def test_half_an_archive_is_never_a_whole_folder(
    cluster: PrivateCluster, tar_of_node3: Path, local: Path, script: str, reason: str
) -> None:
    tar_of_node3.write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(NodeError, match=rf"^node3: .* could not be fetched whole: {reason}"):
        fetch_from_node3(cluster, local, silence_s=10)
    assert left_beside(local) == []


def test_holes_and_second_names_of_a_file_cost_what_they_hold(cluster: PrivateCluster, local: Path) -> None:
    remote = cluster.home("node1") / "holes"
    remote.mkdir()
    with (remote / "sparse").open("wb") as sparse:
        sparse.write(b"first")
        sparse.seek(50 * 10**9)
        sparse.write(b"last")
        sparse.truncate(60 * 10**9)
    (remote / "second").hardlink_to(remote / "sparse")
    assert fetch(cluster, remote, local)
    for name in ("sparse", "second"):
        status = (local / name).stat()
        assert status.st_size == 60 * 10**9 and status.st_blocks * 512 < 10**6
        with (local / name).open("rb") as fetched:
            assert fetched.read(6) == b"first\0"
            fetched.seek(50 * 10**9)
            assert fetched.read(5) == b"last\0"


# It ends by itself as well: nothing may fill the disk.
GROW = """
import sys, time
with open(sys.argv[1], "ab", buffering=0) as log:
    for _ in range(20_000):
        log.write(b"line\\n" * 2000)
        time.sleep(0.001)
"""


def test_a_file_that_grows_meanwhile_does_no_harm(cluster: PrivateCluster, local: Path) -> None:
    remote = slow_folder(cluster, "grows")
    growing = subprocess.Popen([sys.executable, "-c", GROW, str(remote / "large")])
    try:
        assert fetch(cluster, remote, local)
    finally:
        growing.kill()
        growing.wait()
    with (remote / "large").open("rb") as source, (local / "large").open("rb") as fetched:
        while block := fetched.read(2**20):
            assert block == source.read(len(block))
    (remote / "large").unlink()


def test_a_full_disk_here_is_told_and_the_files_stay_on_the_node(cluster: PrivateCluster, tmp_path: Path) -> None:
    remote = slow_folder(cluster, "too much")
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=10m", "tmpfs", str(small)], check=True)
    try:
        with pytest.raises(ScaleoutError, match=r"the files of node1 cannot be written there: No space left on device"):
            fetch(cluster, remote, small / "node1")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)
    assert (remote / "large").exists()


MEASURED = """
import asyncio, json, sys, time
from pathlib import Path
import private_cluster
from scaleout.remote.collect import fetch_folder

def peak_bytes():
    # `ru_maxrss` would begin with the memory of the process that started this one.
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024

async def fetch():
    cluster = private_cluster.make(Path(sys.argv[1]), ["node1"])
    async with cluster.connected("node1") as [node]:
        await fetch_folder(node, sys.argv[2] + "/small", Path(sys.argv[3]) / "small")
        before, started = peak_bytes(), time.monotonic()
        await fetch_folder(node, sys.argv[2] + "/large", Path(sys.argv[3]) / "large")
        seconds = time.monotonic() - started
        print(json.dumps({"added_bytes": peak_bytes() - before, "peak_bytes": peak_bytes(), "seconds": seconds}))

asyncio.run(fetch())
"""


def sha256_of(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def test_memory_stays_small_whatever_the_size(cluster: PrivateCluster, local: Path) -> None:
    remote = cluster.home("node1") / "sizes"
    for name, size in (("small", 1_000_000), ("large", LARGE_BYTES)):
        (remote / name).mkdir(parents=True)
        with (remote / name / "log").open("wb") as out:
            block = os.urandom(999_992)
            for number in range(size // 1_000_000):
                out.write(number.to_bytes(8) + block)
    paths = [str(CHECKOUT), str(CHECKOUT / "include"), str(Path(__file__).parent)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(cluster.local.folder.parent), str(remote), str(local)],
        env={**environment(), "PYTHONPATH": os.pathsep.join(paths)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    print(done.stdout)
    assert json.loads(done.stdout)["added_bytes"] < MOST_MEMORY_BYTES, done.stdout
    assert sha256_of(local / "large" / "log") == sha256_of(remote / "large" / "log")
    (remote / "large" / "log").unlink()
