"""The local cluster: real daemons on loopback that come and go without touching anything else."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import private_cluster
import psutil
import pytest
from gangs import until
from private_cluster import PrivateCluster, is_running

from scaleout.errors import NodeError, ScaleoutError
from scaleout.local.cluster import local_cluster
from scaleout.remote.node import connect


@pytest.fixture
def own(tmp_path: Path) -> Iterator[PrivateCluster]:
    """A cluster of one node, for a test to take up and down."""
    made = private_cluster.make(tmp_path / "own cluster", ["node1"])
    try:
        made.local.up(print)
        yield made
    finally:
        made.local.down(print)


def daemons(cluster: PrivateCluster) -> list[psutil.Process]:
    found = [cluster.host(name).daemon() for name in ("node1", "array")]
    assert None not in found
    return [daemon for daemon in found if daemon]


def sshds_of(cluster: PrivateCluster) -> list[psutil.Process]:
    folder = str(cluster.local.folder)
    return [p for p in psutil.process_iter(["cmdline"]) if folder in " ".join(p.info["cmdline"] or [])]


def test_ports_and_host_keys_stay_the_same_over_down_and_up(own: PrivateCluster) -> None:
    before, targets = json.loads(own.connections.read_text()), [own.target("node1"), own.target("array")]
    own.local.down(print)
    assert sshds_of(own) == []
    own.local.up(print)
    assert json.loads(own.connections.read_text()) == before
    assert [own.target("node1"), own.target("array")] == targets
    assert len({target.port for target in targets}) == 2


def test_up_twice_starts_nothing_twice(own: PrivateCluster) -> None:
    before = [daemon.pid for daemon in daemons(own)]
    own.local.up(print)
    assert [daemon.pid for daemon in daemons(own)] == before
    assert len(sshds_of(own)) == 2


def test_up_starts_again_what_died(own: PrivateCluster) -> None:
    dead = own.host("node1").daemon()
    assert dead is not None
    dead.kill()
    asyncio.run(until(lambda: not is_running(dead.pid)))
    own.local.up(print)
    assert [daemon.is_running() for daemon in daemons(own)] == [True, True]


def test_up_keeps_the_connections_that_somebody_has_added(own: PrivateCluster) -> None:
    document = json.loads(own.connections.read_text())
    added = {"mine_node1": {"conn_type": "ssh", "host": "dgx1"}}
    stale = {name: {**entry, "port": 1} for name, entry in document.items()}
    own.connections.write_text(json.dumps(stale | added))
    own.local.up(print)
    assert json.loads(own.connections.read_text()) == document | added
    own.connections.write_text("{")
    with pytest.raises(ScaleoutError, match=r"connections\.json: not JSON: .*; mend it, or remove it"):
        own.local.up(print)


def test_the_connections_file_is_private_and_holds_no_private_key(own: PrivateCluster) -> None:
    assert own.connections.stat().st_mode & 0o777 == 0o600
    text = own.connections.read_text()
    assert "PRIVATE KEY" not in text
    keys = [path for path in own.local.folder.rglob("*ed25519*") if path.suffix != ".pub"]
    assert len(keys) == 3
    for key in keys:
        assert key.stat().st_mode & 0o077 == 0
        secret = key.read_text().splitlines()[1:-1]
        assert not [line for line in secret if line in text]
    assert {entry["host"] for entry in json.loads(text).values()} == {"127.0.0.1"}


def test_only_loopback_listens(own: PrivateCluster) -> None:
    listening = [
        connection.laddr
        for daemon in daemons(own)
        for connection in daemon.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    ]
    ports = {own.target(name).port for name in ("node1", "array")}
    assert {(address.ip, address.port) for address in listening} == {("127.0.0.1", port) for port in ports}


def test_a_password_is_not_even_asked_for(own: PrivateCluster, tmp_path: Path) -> None:
    target = own.target("node1")
    with pytest.raises(NodeError, match="refused the login"):
        asyncio.run(connect(replace(target, key_file=str(_stranger(tmp_path)), password="root"), "python3", 10))
    command = ["ssh", "-F", "none", "-p", str(target.port), "-o", "BatchMode=yes", "-o", "PubkeyAuthentication=no"]
    command += [
        "-o",
        f"UserKnownHostsFile={tmp_path / 'known'}",
        "-o",
        "StrictHostKeyChecking=accept-new",
        "127.0.0.1",
        "id",
    ]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 255
    assert "Permission denied (publickey)." in refused.stderr


def _stranger(folder: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "stranger"], check=True)
    return folder / "stranger"


def test_down_ends_daemons_and_their_sessions_and_nothing_else(own: PrivateCluster, tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])

    async def work() -> None:
        async with own.connected("node1") as [node]:
            # One that a session holds, and one that has left it, as a gang's supervisor does.
            script = "setsid sleep 62 </dev/null >/dev/null 2>&1 & echo $! > ~/left; echo $$ > ~/held; exec sleep 61"
            running = asyncio.create_task(node.run(["sh", "-c", script], timeout_s=30))
            await until(lambda: (own.home("node1") / "held").exists())
            family = [process for daemon in daemons(own) for process in [daemon, *daemon.children(recursive=True)]]
            held, left = (int((own.home("node1") / name).read_text()) for name in ("held", "left"))
            assert held in {process.pid for process in family}
            own.local.down(print)
            with pytest.raises(NodeError, match="the connection was lost"):
                await running
            assert not is_running(held)
            assert is_running(bystander.pid)
            assert not [process for process in family if process.pid != left and is_running(process.pid)]

    try:
        asyncio.run(work())
        assert sshds_of(own) == []
    finally:
        bystander.kill()
        bystander.wait()
        left = int((own.home("node1") / "left").read_text())
        if is_running(left):
            private_cluster.kill(left)


def test_down_leaves_a_strangers_process_alone_that_has_a_dead_daemons_number(own: PrivateCluster) -> None:
    own.local.down(print)
    (own.host("node1").folder / "sshd.pid").write_text(str(os.getpid()))
    own.local.down(print)
    own.local.up(print)
    assert own.host("node1").daemon() is not None


def test_down_twice_and_down_before_up_are_no_errors(own: PrivateCluster, tmp_path: Path) -> None:
    own.local.down(print)
    own.local.down(print)
    private_cluster.make(tmp_path / "never up", ["node1"]).local.down(print)
    assert not (tmp_path / "never up").exists()


def test_asking_for_the_hosts_writes_into_no_file_that_others_read_or_run(own: PrivateCluster) -> None:
    def written() -> dict[str, tuple[int, int]]:
        found = [next(own.local.folder.rglob(name)) for name in ("isi_flush", "isi_for_array", "ports.json")]
        return {path.name: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}

    before = written()
    own.local.hosts()
    assert written() == before


def test_every_host_sees_the_nas_and_has_a_home_of_its_own(cluster: PrivateCluster) -> None:
    (cluster.local.nas / "seen").write_text("by all\n")

    async def work() -> None:
        async with cluster.connected("node1", "node2", "node3") as nodes:
            assert len({node.home for node in nodes}) == 3
            for node in nodes:
                assert await node.read(["cat", node.path("~/nas/seen")], timeout_s=10) == b"by all\n"

    asyncio.run(work())


def test_a_port_that_is_taken_is_told(own: PrivateCluster) -> None:
    port = own.target("node1").port
    own.local.down(print)
    with socket.create_server(("127.0.0.1", port)), pytest.raises(ScaleoutError) as caught:
        own.local.up(print)
    assert f"host node1: cannot listen on 127.0.0.1:{port} (Address already in use)" in str(caught.value)
    own.local.up(print)


def test_the_demos_cluster_lies_in_the_home_folder(
    own: PrivateCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path))
    monkeypatch.setenv("SCALEOUT_VENVS", str(tmp_path / "none"))
    with pytest.raises(ScaleoutError, match=r"no training environment at .*/none/node/bin/python: run `make setup`"):
        local_cluster(own.local.cluster)
    monkeypatch.setenv("SCALEOUT_VENVS", str(own.local.node_python.parents[2]))
    assert local_cluster(own.local.cluster).folder == tmp_path.resolve() / "cluster"
