"""What a node says of itself: addresses and ports, its hardware, its processes."""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from gangs import until
from private_cluster import PrivateCluster

from scaleout.errors import NodeError


def ask(cluster: PrivateCluster, program: str, *arguments: str) -> dict[str, Any]:
    async def once() -> dict[str, Any]:
        async with cluster.connected("node1") as [node]:
            return await node.ask(program, *arguments, timeout_s=60)

    return asyncio.run(once())


def test_a_free_port_can_be_listened_on(cluster: PrivateCluster) -> None:
    port = ask(cluster, "network", "free-port")["port"]
    with socket.create_server(("", port)) as listener:
        assert listener.getsockname()[1] == port


@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_the_interface_that_leads_to_loopback(cluster: PrivateCluster, address: str) -> None:
    answer = ask(cluster, "network", "interface", address)
    assert (answer["interface"], answer["address"]) == ("lo", "127.0.0.1")


def test_an_address_that_leads_nowhere_is_named(cluster: PrivateCluster) -> None:
    with pytest.raises(NodeError, match=r"^node1: network: interface 999\.1\.1\.1: "):
        ask(cluster, "network", "interface", "999.1.1.1")


def test_preflight_tells_what_the_node_is(cluster: PrivateCluster, tmp_path: Path) -> None:
    started = time.time()
    answer = ask(
        cluster, "preflight", str(cluster.home("node1") / "not" / "yet"), str(tmp_path), str(tmp_path / "not yet")
    )
    assert answer["hostname"] == socket.gethostname()
    assert answer["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert answer["kernel"] == platform.release()
    assert Path(answer["executable"]).parent == cluster.local.node_python.parent
    assert "psutil" in answer["versions"] and "torch" in answer["versions"]
    assert answer["cpus"] == len(os.sched_getaffinity(0))
    assert answer["memory_bytes"] == psutil.virtual_memory().total
    assert isinstance(answer["gpus"], list)
    assert answer["uid"] == os.geteuid()
    assert answer["can_drop_caches"] is os.access("/proc/sys/vm/drop_caches", os.W_OK)
    assert answer["root_free_bytes"] > 0
    assert answer["source_exists"] is True
    assert answer["shm_bytes"] > 0
    assert started - 5 < answer["wall_s"] < time.time() + 5
    found = subprocess.run(
        ["findmnt", "-no", "FSTYPE,TARGET", "-T", tmp_path], capture_output=True, text=True, check=True
    )
    assert [answer["data_mount"]["type"], answer["data_mount"]["point"]] == found.stdout.split()


def test_preflight_finds_the_mount_of_a_data_set_whatever_its_name(cluster: PrivateCluster, tmp_path: Path) -> None:
    point = tmp_path / "daten für\n'es' \\ 1"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(point)], check=True)
    try:
        answer = ask(cluster, "preflight", str(tmp_path), str(point), str(point / "prepared"))
    finally:
        subprocess.run(["umount", str(point)], check=True)
    assert (answer["data_mount"]["type"], answer["data_mount"]["point"]) == ("tmpfs", str(point))


def test_preflight_tells_of_a_data_set_that_is_not_there(cluster: PrivateCluster, tmp_path: Path) -> None:
    answer = ask(cluster, "preflight", str(tmp_path), str(tmp_path / "nothing"), str(tmp_path))
    assert answer["source_exists"] is False


def test_preflight_changes_nothing(cluster: PrivateCluster, tmp_path: Path) -> None:
    ask(cluster, "preflight", *(str(tmp_path / name) for name in ("root", "source", "data")))
    assert list(tmp_path.iterdir()) == []


def test_processes_are_found_by_their_run_and_by_nothing_else(cluster: PrivateCluster, run_id: str) -> None:
    script = "import time; time.sleep(60)"

    def start(**environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", script, "é;"], env={"PATH": os.environ["PATH"], **environment})

    ours = start(SCALEOUT_RUN_ID=run_id)
    others = [start(SCALEOUT_RUN_ID=f"{run_id}x"), start(OTHER=run_id), start(X_SCALEOUT_RUN_ID=run_id), start()]
    try:
        asyncio.run(
            until(lambda: all("sleep(60)" in " ".join(psutil.Process(p.pid).cmdline()) for p in [ours, *others]))
        )
        answer = ask(cluster, "processes", run_id)
        assert answer["processes"] == [{"pid": ours.pid, "command": f"{sys.executable} -c {script} é;"}]
    finally:
        for process in [ours, *others]:
            process.kill()
            process.wait()
    assert ask(cluster, "processes", run_id)["processes"] == []
