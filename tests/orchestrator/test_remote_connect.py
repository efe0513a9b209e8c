"""Reaching a node: what a user is told when it cannot be reached, or is not what it should be."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from airflow.secrets.local_filesystem import LocalFilesystemBackend
from private_cluster import PATIENCE_S, PrivateCluster

from scaleout.errors import ConfigError, FleetError, NodeError
from scaleout.local.hosts import make_key
from scaleout.local.ports import free_port
from scaleout.remote.fleet import connected
from scaleout.remote.node import Node, connect
from scaleout.remote.target import Target, target_from_file, target_of


def refusal(target: Target, timeout_s: float = PATIENCE_S) -> str:
    """The sentence of the error that connecting ends in."""

    async def attempt() -> None:
        node = await connect(target, "python3", timeout_s)
        node.connection.abort()

    with pytest.raises(NodeError) as caught:
        asyncio.run(attempt())
    assert caught.value.node == target.name
    return str(caught.value)


def test_a_node_is_reached_and_its_home_is_its_own(cluster: PrivateCluster) -> None:
    async def homes() -> list[str]:
        async with cluster.connected("node2", "node1") as nodes:
            return [node.path("~/x") for node in nodes] + [nodes[0].path("~"), nodes[0].path("/x"), nodes[0].path("~x")]

    home1, home2 = cluster.home("node1"), cluster.home("node2")
    assert asyncio.run(homes()) == [f"{home2}/x", f"{home1}/x", str(home2), "/x", "~x"]


def test_a_closed_port_is_named(cluster: PrivateCluster) -> None:
    target = replace(cluster.target("node1"), port=free_port())
    assert f"node1: cannot connect to 127.0.0.1:{target.port}" in refusal(target)


@pytest.mark.parametrize("first_words", [b"", b"220 mail.example.org ESMTP\r\n", b"SSH-2.0-OpenSSH_9.2\r\n"])
def test_a_port_that_accepts_and_does_not_go_on_is_given_up(cluster: PrivateCluster, first_words: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        target = replace(cluster.target("node1"), port=listener.getsockname()[1])

        async def attempt() -> None:
            connecting = asyncio.create_task(connect(target, "python3", 0.5))
            accepted, _ = await asyncio.to_thread(listener.accept)
            with accepted:
                accepted.sendall(first_words)
                await connecting

        started = time.monotonic()
        said = rf"^node1: 127\.0\.0\.1:{target.port} did not answer within 0\.5 s: is the node up"
        with pytest.raises(NodeError, match=said):
            asyncio.run(attempt())
        assert time.monotonic() - started < 3


def test_a_host_name_that_nobody_knows_is_named(cluster: PrivateCluster) -> None:
    """By the resolver's refusal, or by our patience with a resolver that is itself cut off."""
    sentence = refusal(replace(cluster.target("node1"), host="nowhere.invalid"), timeout_s=2)
    assert sentence.startswith(("node1: cannot connect to nowhere.invalid", "node1: nowhere.invalid"))


def test_a_wrong_host_key_is_refused(cluster: PrivateCluster) -> None:
    target = replace(cluster.target("node1"), host_key=cluster.target("node2").host_key)
    sentence = refusal(target)
    assert f"the host key of 127.0.0.1:{target.port} is not its connection's host_key" in sentence
    assert "find out why" in sentence


def test_without_a_host_key_an_unknown_host_is_refused(cluster: PrivateCluster) -> None:
    assert "is not any key in ~/.ssh/known_hosts" in refusal(replace(cluster.target("node1"), host_key=None))


def test_a_login_with_another_key_is_refused(cluster: PrivateCluster, tmp_path: Path) -> None:
    stranger = tmp_path / "keys" / "stranger"
    make_key(stranger)
    sentence = refusal(replace(cluster.target("node1"), key_file=str(stranger)))
    assert "refused the login of 'root'" in sentence and "check its key" in sentence


def test_an_unknown_user_is_refused(cluster: PrivateCluster) -> None:
    assert "refused the login of 'nobody'" in refusal(replace(cluster.target("node1"), user="nobody"))


def test_a_key_file_that_is_missing_or_is_no_key_is_told(cluster: PrivateCluster, tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("no key\n")
    assert "node1: cannot connect" in refusal(replace(cluster.target("node1"), key_file=str(text)))
    assert "No such file" in refusal(replace(cluster.target("node1"), key_file=str(tmp_path / "gone")))
    assert "node1: cannot connect" in refusal(replace(cluster.target("node1"), private_key="no key"))


def test_a_private_key_in_the_connection_itself_will_do(cluster: PrivateCluster) -> None:
    target = cluster.target("node1")
    assert target.key_file is not None
    target = replace(target, key_file=None, private_key=Path(target.key_file).read_text())

    async def home() -> str:
        async with connected([target], python="python3", timeout_s=PATIENCE_S) as nodes:
            return nodes[0].home

    assert asyncio.run(home()) == str(cluster.home("node1"))
    assert "PRIVATE KEY" not in repr(target)


@pytest.mark.parametrize("value", [True, "true", "True"])
def test_a_connection_that_turns_host_key_checking_off_is_refused(tmp_path: Path, value: object) -> None:
    document = {
        "n": {"conn_type": "ssh", "host": "h", "extra": {"no_host_key_check": value, "host_key": "ssh-ed25519 AAAA"}}
    }
    (tmp_path / "connections.json").write_text(json.dumps(document))
    with pytest.raises(ConfigError, match="node1: its connection turns host key checking off; give its host_key"):
        target_from_file(tmp_path / "connections.json", "n", "node1")


def test_a_connection_that_keeps_it_on_is_taken() -> None:
    extra = {"no_host_key_check": "false", "host_key": "ssh-ed25519 AAAA", "key_file": "~/.ssh/k"}
    target = target_of("node1", host="h", port=None, login="u", password=None, extra=extra)
    assert (target.port, target.host_key, target.key_file) == (22, "ssh-ed25519 AAAA", "~/.ssh/k")


def test_a_connection_without_a_host_is_refused() -> None:
    with pytest.raises(ConfigError, match="node1: its connection has no host"):
        target_of("node1", host="", port=22, login="u", password=None, extra={})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read: No such file.*scaleout cluster up"),
        ("{", "connections.json: not JSON: "),
        ("[]", "no connection 'n'; .*SCALEOUT_CONNECTIONS_FILE"),
        ("{}", "no connection 'n'; .*SCALEOUT_CONNECTIONS_FILE"),
        ('{"n": 3}', "the connection 'n' cannot be understood: it is neither"),
        ('{"n": [{"host": "a"}, {"host": "b"}]}', "the connection 'n' cannot be understood: it is neither"),
        ('{"n": {"host": "h", "extra": "{"}}', "the connection 'n' cannot be understood: Expecting"),
        ('{"n": {"host": "h", "extra": [1]}}', "the connection 'n' cannot be understood: its extra is no mapping"),
        ('{"n": {"host": "h", "port": "ssh"}}', "the connection 'n' cannot be understood: invalid literal"),
        ('{"n": "ssh://h:port"}', "the connection 'n' cannot be understood: Port"),
    ],
)
def test_a_connections_file_that_will_not_do_is_told(tmp_path: Path, content: str | None, said: str) -> None:
    path = tmp_path / "connections.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ConfigError, match=said):
        target_from_file(path, "n", "node1")


EXTRA = {"key_file": "~/.ssh/a key", "host_key": "ssh-ed25519 AAAA+/="}
WHOLE = {"conn_type": "ssh", "host": "h", "port": 2222, "login": "a@b", "password": "p:/?", "extra": EXTRA}
QUERY = "key_file=~/.ssh/a%20key&host_key=ssh-ed25519%20AAAA%2B/%3D"


@pytest.mark.parametrize(
    "connection",
    [
        WHOLE,
        {**WHOLE, "extra": json.dumps(EXTRA)},
        [WHOLE],
        f"ssh://a%40b:p%3A%2F%3F@h:2222/?{QUERY}",
        f"ssh://a%40b:p%3A%2F%3F@h:2222/?__extra__={quote(json.dumps(EXTRA))}",
        {"conn_type": "ssh", "host": "h"},
        {"conn_type": "ssh", "host": "h", "port": None, "login": None, "extra": None},
        "ssh://h",
    ],
)
def test_a_connection_means_what_it_means_to_airflow(tmp_path: Path, connection: object) -> None:
    path = tmp_path / "connections.json"
    path.write_text(json.dumps({"n": connection}))
    read = LocalFilesystemBackend(connections_file_path=str(path)).get_connection("n")
    theirs = target_of(
        "node1", host=read.host, port=read.port, login=read.login, password=read.password, extra=read.extra_dejson
    )
    ours = target_from_file(path, "n", "node1")
    assert (ours, ours.password) == (theirs, theirs.password)


def test_all_that_cannot_be_reached_are_named_and_the_work_does_not_begin(cluster: PrivateCluster) -> None:
    closed = replace(cluster.target("node2"), port=free_port())
    strange = replace(cluster.target("node3"), host_key=cluster.target("node1").host_key)
    begun = []

    async def attempt() -> None:
        targets = [cluster.target("node1"), closed, strange]
        async with connected(targets, python="python3", timeout_s=PATIENCE_S) as nodes:
            begun.append(nodes)

    with pytest.raises(FleetError) as caught:
        asyncio.run(attempt())
    assert [problem.node for problem in caught.value.problems] == ["node2", "node3"]
    assert str(caught.value).startswith("connecting failed on 2 nodes:\n  node2: cannot connect")
    assert not begun


def test_a_login_shell_that_talks_does_not_get_in_the_way(
    cluster: PrivateCluster, login_shell: Callable[[str, str], None]
) -> None:
    login_shell(
        "node1", "echo 'Welcome to node1!'; echo '{\"quota\": 3}'; echo 'mind the gap' >&2; printf 'no newline'"
    )

    async def talk() -> tuple[str, dict, bytes]:
        async with cluster.connected("node1") as [node]:
            interface = await node.ask("network", "interface", "127.0.0.1", timeout_s=PATIENCE_S)
            return node.home, interface, await node.read(["printf", "a\\0b"], timeout_s=PATIENCE_S)

    home, interface, read = asyncio.run(talk())
    assert home == str(cluster.home("node1"))
    assert (interface["interface"], interface["address"]) == ("lo", "127.0.0.1")
    assert read == b"a\0b"


def test_a_slow_login_shell_is_waited_for_up_to_the_limit(
    cluster: PrivateCluster, login_shell: Callable[[str, str], None]
) -> None:
    login_shell("node1", "sleep 0.8")

    async def home(timeout_s: float) -> str:
        async with connected([cluster.target("node1")], python="python3", timeout_s=timeout_s) as nodes:
            return nodes[0].home

    assert asyncio.run(home(10)) == str(cluster.home("node1"))
    with pytest.raises(FleetError, match=r"node1: .*within 0\.6 s"):
        asyncio.run(home(0.6))


def test_a_login_shell_that_runs_nothing_is_told(
    cluster: PrivateCluster, login_shell: Callable[[str, str], None]
) -> None:
    login_shell("node1", "echo 'This account is currently not available.'; exit 1")
    sentence = refusal(cluster.target("node1"))
    assert "its login shell did not run a command: 'This account is currently not available.'" in sentence


def test_nothing_is_held_open_when_the_work_is_over(cluster: PrivateCluster) -> None:
    async def use() -> list[Node]:
        async with cluster.connected("node1", "node2") as nodes:
            return nodes

    for node in asyncio.run(use()):
        assert node.connection.is_closed()


def test_many_connections_at_once_are_let_in(cluster: PrivateCluster) -> None:
    """sshd's own default refuses one in three from the tenth unauthenticated connection on."""
    names = ["node1"] * 40

    async def count() -> int:
        async with cluster.connected(*names) as nodes:
            return len(nodes)

    assert asyncio.run(count()) == len(names)
