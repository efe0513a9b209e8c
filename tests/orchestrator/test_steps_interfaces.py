"""The interfaces of a gang: asked of real nodes, two of which have networks and machines of their own."""

from __future__ import annotations

import asyncio
import shlex
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import BOOT_ID, Machine
from private_cluster import PrivateCluster
from trials import sweep_of

from scaleout import settings
from scaleout.config.cluster import Cluster
from scaleout.errors import FleetError, NodeError, ScaleoutError
from scaleout.results.store import SweepStore
from scaleout.steps.interfaces import choose_interfaces, environment_of
from scaleout.steps.session import Session

FIRST, SECOND = "10.77.1.1", "10.77.1.2"
Choose = Callable[..., dict[str, str]]


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def choose(cluster: PrivateCluster, said: list[str]) -> Choose:
    """`choose(host, node1={…}, cluster keys…)`: the interfaces of a gang on node1 and node2."""

    def choose(host: str, node1: dict[str, Any] | None = None, **changes: Any) -> dict[str, str]:
        document = cluster.local.cluster.model_dump() | changes
        document["nodes"][0] |= node1 or {}
        sweep = sweep_of({"workloads": ["ssd"], "nodes": [2], "length": {"steps": 2}}, Cluster.model_validate(document))
        targets = {node.connection: cluster.target(node.name) for node in sweep.cluster.nodes}
        session = Session(SweepStore("interfaces"), sweep, targets, said.append)

        async def connected() -> dict[str, str]:
            async with session.connected(["node1", "node2"]) as nodes:
                return await choose_interfaces(session, nodes, host)

        return asyncio.run(connected())

    return choose


@pytest.fixture
def apart(
    cluster: PrivateCluster, login_shell: Callable[[str, str], None], tmp_path: Path
) -> Iterator[tuple[Machine, Machine]]:
    """The training programs of node1 and node2 find themselves on two machines, with a cable between them."""
    with Machine() as first, Machine() as second:
        first.link(second)
        for node, machine, address in (("node1", first, FIRST), ("node2", second, SECOND)):
            machine.up("eth0", f"{address}/24")
            folder = tmp_path / node
            (folder / "bin").mkdir(parents=True)
            machine.knows(folder / "hosts", f"{'127.0.1.1' if machine is first else FIRST} first")
            boot_id = folder / "boot_id"
            boot_id.write_text(f"{uuid.uuid4()}\n")
            machine.puts(boot_id, BOOT_ID)
            program = folder / "bin" / "python3"
            program.write_text(f'#!/bin/sh\nexec {shlex.join(machine.enter([str(settings.node_python())]))} "$@"\n')
            program.chmod(0o755)
            login_shell(node, f"PATH={shlex.quote(str(program.parent))}:$PATH\n")
        for machine in (first, second):
            machine.wait_for_carrier("eth0")
        yield first, second


def test_on_one_machine_the_loopback_is_taken_and_said(choose: Choose, said: list[str]) -> None:
    assert choose("127.0.0.1") == {"node1": "lo", "node2": "lo"}
    (line,) = said
    assert line == (
        "network interfaces: node1 lo (127.0.0.1, the loopback: all nodes are one machine), "
        "node2 lo (127.0.0.1, the loopback: all nodes are one machine)"
    )


@pytest.mark.usefixtures("apart")
def test_between_machines_it_is_the_interface_that_leads_to_the_first_one(choose: Choose, said: list[str]) -> None:
    assert choose(FIRST) == {"node1": "eth0", "node2": "eth0"}
    assert said == [f"network interfaces: node1 eth0 ({FIRST}), node2 eth0 ({SECOND})"]


@pytest.mark.usefixtures("apart")
def test_a_name_that_means_the_loopback_to_its_own_node_is_taken_as_its_peers_know_it(choose: Choose) -> None:
    assert choose("first") == {"node1": "eth0", "node2": "eth0"}


@pytest.mark.parametrize(("host", "changes"), [("127.0.0.1", {}), (FIRST, {"network_interface": "lo"})])
@pytest.mark.usefixtures("apart")
def test_the_loopback_of_several_machines_is_refused(choose: Choose, host: str, changes: dict[str, Any]) -> None:
    with pytest.raises(
        NodeError, match=rf"^node1: {host} leads to the loopback there, .* give the first node an `address`"
    ):
        choose(host, **changes)


def test_a_node_may_call_it_otherwise(apart: tuple[Machine, Machine], choose: Choose) -> None:
    apart[0].add_bridge("ib0", "10.79.0.1/24")
    assert choose(FIRST, network_interface="eth0", node1={"network_interface": "ib0"}) == {
        "node1": "ib0",
        "node2": "eth0",
    }


@pytest.mark.usefixtures("apart")
def test_an_interface_that_a_node_does_not_have_is_refused_by_name(choose: Choose) -> None:
    with pytest.raises(FleetError) as caught:
        choose(FIRST, network_interface="eth0,ib7")
    lack = "it has no interface 'ib7', the network_interface of the cluster's file; it can use eth0"
    assert str(caught.value) == (
        "choosing the network interface failed on 2 nodes:\n"
        f"  node1: {lack} ({FIRST}), lo (127.0.0.1 ::1)\n"
        f"  node2: {lack} ({SECOND}), lo (127.0.0.1 ::1)"
    )


def test_gloo_and_nccl_are_told_the_same_and_nccl_exactly() -> None:
    assert environment_of("ib0,ib1") == {"GLOO_SOCKET_IFNAME": "ib0,ib1", "NCCL_SOCKET_IFNAME": "=ib0,ib1"}


@pytest.mark.parametrize("name", ["", "eth0, eth1", "^docker0", "=eth0", "a/b", "a" * 16, "eth0,"])
def test_what_cannot_be_an_interface_is_refused_in_the_file(choose: Choose, name: str) -> None:
    with pytest.raises((ScaleoutError, ValueError), match="network_interface"):
        choose("127.0.0.1", network_interface=name)
