"""Each fault at each number of nodes: how the gang ends, how soon nothing is left, what is kept, and that the next one starts."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from bed import Bed
from faults import BY_NAME, FAULTS, Fault, Scene
from launch import Launch, Order, check_none_doubled, launched, run_briefly
from matrix import Found

TOLD_LIMIT_S, GONE_LIMIT_S = 60.0, 20.0
# Ranks of torch begin their event logs late, where they share two cores.
NO_PROGRESS_S = {"ring": 2.5, "torch": 30.0}
QUICK = {
    ("rank exits 9", 2),
    ("deadlock", 2),
    ("holder killed", 1),
    ("ssh connection killed", 2),
    ("link cut for longer than the lease", 2),
    ("Ctrl-C", 2),
}
CELLS = [
    pytest.param(
        fault.name,
        nodes,
        "ring",
        id=f"{fault.name}-{nodes}",
        marks=[pytest.mark.quick] * ((fault.name, nodes) in QUICK),
    )
    for fault in FAULTS
    for nodes in (1, 2, 4)
]
CELLS += [pytest.param(fault.name, 2, "torch", id=f"{fault.name}-2-torch") for fault in FAULTS]


@pytest.mark.parametrize(("name", "nodes", "ranks"), CELLS)
def test_cell(bed: Bed, release: str, found: list[Found], name: str, nodes: int, ranks: str) -> None:
    cell = Found(name, nodes, ranks)
    found.append(cell)
    fault = BY_NAME[name]
    per_node = 1 if ranks == "torch" else 2
    no_progress_s = NO_PROGRESS_S[ranks] if fault.makes_no_progress else None
    order = Order(release, nodes, ranks, per_node, no_progress_s=no_progress_s)
    try:
        run_cell(bed, order, fault, cell)
    except BaseException as error:
        cell.problem = str(error).strip().partition("\n")[0][:300] or type(error).__name__
        bed.mend()
        raise


def run_cell(bed: Bed, order: Order, fault: Fault, cell: Found) -> None:
    with small_disk(bed, order, fault), launched(bed, order) as launch:
        launch.wait_for_lines(3)
        scene = Scene.of(launch)
        struck = time.monotonic()
        fault.strike(scene)
        end = ended(launch, fault)
        cell.end, cell.cause = next(iter(end)), shortened(end.get("failed", ""))
        cell.told_s = time.monotonic() - struck if fault.end != "killed" else None
        launch.wait_until_nothing_is_left(GONE_LIMIT_S)
        cell.gone_s = time.monotonic() - struck
        check_end(fault, scene, end)
        if fault.end != "killed":
            cell.lines = launch.check_lines([scene.host] * (fault.cut_off or fault.name == "node rebooted"))
        cell.steps = launch.check_events()
        fault.mend(scene)
        check_none_doubled(bed)
    cell.next_launch_s = run_briefly(bed, dataclasses.replace(order, no_progress_s=None, trial=""))
    check_none_doubled(bed)


def ended(launch: Launch, fault: Fault) -> dict[str, Any]:
    """What the orchestrator said last; one that is to succeed goes on for a while first."""
    if fault.resume:
        launch.orchestrator.process.wait()
        launch.attempt(fault.resume)
    if fault.end == "succeeded":
        launch.wait_for_lines(3)
        launch.finish()
    if fault.end == "killed":
        return {"killed": True}
    end = launch.orchestrator.wait(TOLD_LIMIT_S)
    return {key: value for key, value in end.items() if key != "t"}


def check_end(fault: Fault, scene: Scene, end: dict[str, Any]) -> None:
    launch = scene.launch
    assert fault.end in end, f"it was to be {fault.end}: {end} {launch.orchestrator.errors()[-2000:]}"
    if fault.end == "failed":
        pattern = fault.cause.format(node=re.escape(scene.host.name), rank=scene.rank)
        assert re.match(pattern, end["failed"], re.DOTALL), f"it was to be {pattern!r}: {end['failed']!r}"
    if fault.end == "succeeded":
        assert end["succeeded"] == ["succeeded"] * launch.order.nodes
    if fault.end == "killed":
        states = [status.state if status else None for status in map(launch.exit_status, launch.hosts)]
        assert states == ["lease_expired"] * launch.order.nodes
    if fault.end == "cancelled":
        states = [status.state if status else None for status in map(launch.exit_status, launch.hosts)]
        assert states == ["stopped"] * launch.order.nodes


@contextlib.contextmanager
def small_disk(bed: Bed, order: Order, fault: Fault) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if fault.small_disk:
            stack.enter_context(bed.hosts[order.nodes - 1].with_small_runs())
        yield


def shortened(sentence: str) -> str:
    first = sentence.partition("; the end of its log:")[0]
    return first if len(first) < 160 else first[:160] + "…"
