"""All nodes at once: connect to every one of them or to none, ask every one, collect every answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from scaleout.errors import FleetError, NodeError
from scaleout.remote.node import Node, connect
from scaleout.remote.target import Target

T = TypeVar("T")


@asynccontextmanager
async def connected(targets: Sequence[Target], *, python: str, timeout_s: float) -> AsyncIterator[list[Node]]:
    """Connections to all targets, in their order. Raises FleetError that names each node that could not be reached."""
    opened = await asyncio.gather(*(connect(target, python, timeout_s) for target in targets), return_exceptions=True)
    nodes = [node for node in opened if isinstance(node, Node)]
    try:
        yield _all_or_raise("connecting", opened)
    finally:
        for node in nodes:
            node.connection.close()
        await asyncio.gather(*(node.connection.wait_closed() for node in nodes), return_exceptions=True)


async def each(step: str, nodes: Sequence[Node], do: Callable[[Node], Awaitable[T]]) -> dict[str, T]:
    """Runs `do` on all nodes at once and gives the results by node name.

    Waits for every node, then raises FleetError with a line per node that failed; `step` names what was done.
    """
    answers = await asyncio.gather(*(do(node) for node in nodes), return_exceptions=True)
    return dict(zip([node.name for node in nodes], _all_or_raise(step, answers), strict=True))


def _all_or_raise(step: str, answers: Sequence[T | BaseException]) -> list[T]:
    problems = [answer for answer in answers if isinstance(answer, NodeError)]
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, NodeError):
            raise answer
    if problems:
        raise FleetError(step, problems)
    return [answer for answer in answers if not isinstance(answer, BaseException)]
