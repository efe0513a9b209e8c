"""Which interface a node takes for the traffic of a gang, on machines with interfaces of the test's own."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import Machine
from trials import CHECKOUT

from scaleout import settings

PROGRAM = CHECKOUT / "training" / "node" / "network.py"
FIRST, FIRST_6, SECOND = "10.77.0.1", "fd77::1", "10.77.0.2"


class Node(Machine):
    """A machine on which the program runs."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = self.enter([str(settings.node_python()), "-I", str(PROGRAM), *arguments])
        return subprocess.run(command, capture_output=True, text=True, timeout=30)

    def interface(self, *arguments: str) -> dict[str, Any]:
        done = self.run("interface", *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refusal(self, *arguments: str) -> str:
        done = self.run("interface", *arguments)
        assert done.returncode != 0 and not done.stdout
        return done.stderr.strip()


@pytest.fixture
def nodes() -> Iterator[tuple[Node, Node]]:
    """Two nodes on one network, as `eth0` of either; the first one also has containers."""
    with Node() as first, Node() as second:
        first.link(second)
        first.add_bridge("docker0", "172.17.0.1/16")
        first.add_bridge("br-0123456789ab", "172.18.0.1/16")
        first.up("eth0", f"{FIRST}/24", f"{FIRST_6}/64")
        second.up("eth0", f"{SECOND}/24", "fd77::2/64")
        for node in (first, second):
            node.wait_for_carrier("eth0")
        yield first, second


Two = tuple[Node, Node]


def test_both_nodes_take_the_interface_between_them(nodes: Two) -> None:
    first, second = nodes
    for node, address in ((first, FIRST), (second, SECOND)):
        found = node.interface(FIRST)
        assert (found["interface"], found["address"], found["loopback"]) == ("eth0", address, False)


def test_an_address_of_version_6_leads_there_too(nodes: Two) -> None:
    assert [node.interface(FIRST_6)["interface"] for node in nodes] == ["eth0", "eth0"]
    assert [node.interface(FIRST_6)["address"] for node in nodes] == ["fd77::1", "fd77::2"]


def test_a_second_address_of_an_interface_is_found(nodes: Two) -> None:
    first, second = nodes
    first.up("eth0", "10.78.0.1/24")
    second.ip("route add 10.78.0.0/24 dev eth0")
    assert first.interface("10.78.0.1") == {**first.interface(FIRST), "address": "10.78.0.1", "to": "10.78.0.1"}
    assert second.interface("10.78.0.1")["interface"] == "eth0"


def test_of_several_interfaces_with_the_address_it_is_none_of_containers(nodes: Two) -> None:
    first, _ = nodes
    first.up("docker0", f"{FIRST}/24")
    first.up("lo", f"{FIRST}/32")
    assert first.interface(FIRST)["interface"] == "eth0"


def test_a_host_name_that_means_the_loopback_on_its_own_node_is_told(nodes: Two, tmp_path: Path) -> None:
    """As Debian's installer writes it: the orchestrator then asks the peers what the name means to them."""
    first, second = nodes
    first.knows(tmp_path / "first", "127.0.1.1 node1")
    second.knows(tmp_path / "second", f"{FIRST} node1")
    assert (first.interface("node1")["interface"], first.interface("node1")["loopback"]) == ("lo", True)
    found = second.interface("node1")
    assert (found["interface"], found["to"]) == ("eth0", FIRST)
    assert first.interface(found["to"])["interface"] == "eth0"


def test_a_host_name_with_several_addresses_leads_to_one_that_others_reach(nodes: Two, tmp_path: Path) -> None:
    first, _ = nodes
    first.knows(tmp_path / "hosts", "127.0.1.1 node1", f"{FIRST} node1")
    assert first.interface("node1")["interface"] == "eth0"


def test_where_there_is_only_the_loopback_it_is_taken_and_said() -> None:
    with Node() as alone:
        found = alone.interface("127.0.0.1")
        assert (found["interface"], found["address"], found["loopback"]) == ("lo", "127.0.0.1", True)


@pytest.mark.parametrize("address", ["172.17.0.1", "172.17.0.9", "172.18.0.1"])
def test_a_bridge_of_containers_is_refused_where_there_is_a_network(nodes: Two, address: str) -> None:
    name = "br-0123456789ab" if address.startswith("172.18") else "docker0"
    assert nodes[0].refusal(address) == (
        f"{address} leads to {name}, which is of containers: name one of eth0 ({FIRST} {FIRST_6}) as network_interface in "
        "the cluster's file, or give the first node another address"
    )


def test_where_there_is_nothing_else_an_interface_of_any_name_is_taken(nodes: Two) -> None:
    first, _ = nodes
    first.ip("link del eth0")
    assert first.interface("172.17.0.9")["interface"] == "docker0"
    assert first.interface("172.17.0.9", "docker0")["interface"] == "docker0"


def test_what_the_cluster_file_names_is_taken_as_it_is_named(nodes: Two) -> None:
    first, _ = nodes
    first.add_bridge("ib0", "10.79.0.1/24")
    found = first.interface(FIRST, "ib0")
    assert (found["interface"], found["address"], found["loopback"]) == ("ib0", "10.79.0.1", False)
    assert first.interface(FIRST, "ib0,eth0")["interface"] == "ib0,eth0"
    assert first.interface(FIRST, "docker0")["interface"] == "docker0"
    assert first.interface(FIRST, "lo")["loopback"]


def test_an_interface_that_is_not_there_or_not_usable_is_refused_by_name(nodes: Two) -> None:
    first, _ = nodes
    first.ip("link add ib0 type bridge")
    usable = f"br-0123456789ab (172.18.0.1), docker0 (172.17.0.1), eth0 ({FIRST} {FIRST_6}), lo (127.0.0.1 ::1)"
    for lack, name in (("has no interface", "ib7"), ("cannot use its interface", "ib0"), ("has no interface", "")):
        assert first.refusal(FIRST, f"eth0,{name}") == (
            f"it {lack} {name!r}, the network_interface of the cluster's file; it can use {usable}"
        )


def test_an_address_without_a_route_is_told(nodes: Two) -> None:
    assert nodes[1].refusal("203.0.113.5") == "network: interface 203.0.113.5: [Errno 101] Network is unreachable"


def test_ports_are_free_and_none_that_an_outgoing_connection_could_get(nodes: Two) -> None:
    first, _ = nodes
    least = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    with socket.socket() as taken:
        taken.bind(("", 0))
        ports = {json.loads(first.run("free-port").stdout)["port"] for _ in range(5)}
    assert len(ports) > 1 and all(1024 < port < least for port in ports)
