"""The network interface of every node of a gang: the cluster file's, else the one that leads to the first node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scaleout.errors import NodeError
from scaleout.remote.fleet import each
from scaleout.remote.node import Node
from scaleout.steps.session import Session

ANSWER_LIMIT_S = 30.0
Answers = Mapping[str, Mapping[str, Any]]


async def choose_interfaces(session: Session, nodes: Sequence[Node], host: str) -> dict[str, str]:
    """By node; `host` is the first node's name or address. Raises FleetError, NodeError."""
    cluster = session.sweep.cluster
    own = {node.name: node.network_interface or cluster.network_interface for node in cluster.nodes}

    async def ask(node: Node, host: str) -> dict[str, Any]:
        names = own[node.name]
        return await node.ask("network", "interface", host, *([names] if names else []), timeout_s=ANSWER_LIMIT_S)

    answers = await each("choosing the network interface", nodes, lambda node: ask(node, host))
    first = nodes[0]
    outside = _outside(answers, first)
    if outside is not None:
        answers[first.name] = await ask(first, outside)
    _refuse_loopback(answers, host)
    session.say("network interfaces: " + ", ".join(_said(name, answer) for name, answer in answers.items()))
    return {name: answer["interface"] for name, answer in answers.items()}


def environment_of(interface: str) -> dict[str, str]:
    """What makes gloo and NCCL take these interfaces, and for NCCL no others whose names begin alike."""
    return {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}


def _outside(answers: Answers, first: Node) -> str | None:
    """The first node's address as its peers see it, where its own name means the loopback to itself."""
    seen = [answer["to"] for name, answer in answers.items() if name != first.name and not answer["loopback"]]
    return seen[0] if seen and answers[first.name]["loopback"] else None


def _refuse_loopback(answers: Answers, host: str) -> None:
    machines = {answer["boot_id"] for answer in answers.values()}
    inside = [name for name, answer in answers.items() if answer["loopback"]]
    if inside and len(machines) > 1:
        raise NodeError(
            inside[0],
            f"{host} leads to the loopback there, which its peers on {len(machines) - 1} other machines cannot reach: give the "
            "first node an `address`, or the cluster a `network_interface`, in the cluster's file",
        )


def _said(name: str, answer: Mapping[str, Any]) -> str:
    alone = ", the loopback: all nodes are one machine" if answer["loopback"] else ""
    return f"{name} {answer['interface']} ({answer['address']}{alone})"
