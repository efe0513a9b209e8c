"""Speed-up and efficiency: against the smallest node count that was asked for, of the same round and cache state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaleout.analysis.row import Row
from scaleout.analysis.scaling import with_scaling
from training.wire.names import CacheMode, TrialKey


def row(nodes: int, rate: float | None, **changes: Any) -> Row:
    values: dict[str, Any] = {
        "workload": "ssd",
        "nodes": nodes,
        "ranks": 8 * nodes,
        "gpus": 8 * nodes,
        "round": 1,
        "status": "failed" if rate is None else "succeeded",
        "cache_mode": "cold",
        "cache_state": "unproven" if rate is None else "cold",
        "batch_per_gpu": 16,
        "global_batch": 128 * nodes,
        "length": {"steps": 6.0},
        "images_per_s": rate,
        "nodes_used": [],
        "co_located": False,
        "commands": {},
    } | changes
    key = TrialKey(values["round"], values["workload"], nodes, values["cache_mode"])
    return Row(trial=key.folder(1), **values)


def keys(*nodes: int, round_: int = 1, cache_mode: CacheMode = "cold") -> list[TrialKey]:
    return [TrialKey(round_, "ssd", n, cache_mode) for n in nodes]


def test_speedup_and_efficiency_are_against_the_smallest_count() -> None:
    rows = with_scaling([row(1, 100.0), row(2, 190.0), row(4, 300.0)], keys(1, 2, 4))
    assert [r.speedup for r in rows] == [1.0, 1.9, 3.0]
    assert [r.scaling_efficiency for r in rows] == [1.0, 0.95, 0.75]
    assert {r.scaling_base_nodes for r in rows} == {1}
    assert all(r.scaling == "weak" for r in rows)


def test_the_base_need_not_be_one_node() -> None:
    rows = with_scaling([row(2, 100.0), row(6, 240.0)], keys(2, 6))
    assert [(r.speedup, r.scaling_base_nodes) for r in rows] == [(1.0, 2), (2.4, 2)]
    assert rows[1].scaling_efficiency == pytest.approx(0.8)


@settings(deadline=None)
@given(st.floats(0.01, 1e6), st.lists(st.integers(1, 64), min_size=1, max_size=6, unique=True))
def test_perfect_scaling_is_an_efficiency_of_one_at_every_count(rate: float, counts: list[int]) -> None:
    for found in with_scaling([row(n, n * rate) for n in counts], keys(*counts)):
        assert found.scaling_efficiency == pytest.approx(1.0)
        assert found.speedup == pytest.approx(found.nodes / min(counts))


@pytest.mark.parametrize("rows", [[row(2, 190.0)], [row(1, None), row(2, 190.0)]])
def test_without_the_base_that_was_asked_for_there_is_no_efficiency(rows: list[Row]) -> None:
    found = with_scaling(rows, keys(1, 2))[-1]
    assert found.speedup is None and found.scaling_efficiency is None
    assert found.scaling_base_nodes == 1
    assert found.reasons["scaling_efficiency"] == found.reasons["speedup"] == "the base, 1 node, has no rate"


def test_a_trial_without_a_rate_has_no_efficiency() -> None:
    found = with_scaling([row(1, 100.0), row(2, None)], keys(1, 2))[-1]
    assert found.scaling_efficiency is None
    assert found.reasons["scaling_efficiency"] == "this trial has no rate"


@pytest.mark.parametrize(("base", "other"), [("cold", "unproven"), ("unproven", "cold")])
def test_another_cache_state_is_not_compared(base: str, other: str) -> None:
    found = with_scaling([row(1, 100.0, cache_state=base), row(2, 190.0, cache_state=other)], keys(1, 2))[-1]
    assert found.speedup is None and found.scaling_efficiency is None
    assert found.reasons["speedup"] == f"the base's cache state is {base}, this trial's {other}"


def test_another_data_set_is_not_compared() -> None:
    one, two = ({"provenance": {"manifests_read": [digit * 64]}} for digit in "12")
    same, found = with_scaling([row(1, 100.0, **one), row(2, 190.0, **two)], keys(1, 2))
    assert same.speedup == 1.0 and found.speedup is None and found.scaling_efficiency is None
    assert found.reasons["speedup"] == f"the base read the data set {'1' * 12}, this trial {'2' * 12}"


def test_rounds_and_cache_modes_and_workloads_have_bases_of_their_own() -> None:
    rows = [
        row(1, 100.0),
        row(2, 200.0),
        row(1, 50.0, round=2),
        row(2, 200.0, round=2),
        row(1, 400.0, cache_mode="warm", cache_state="warm"),
        row(2, 200.0, cache_mode="warm", cache_state="warm"),
        row(2, 7.0, workload="segmentation"),
    ]
    asked = [*keys(1, 2), *keys(1, 2, round_=2), *keys(1, 2, cache_mode="warm"), TrialKey(1, "segmentation", 2, "cold")]
    assert [r.speedup for r in with_scaling(rows, asked)] == [1.0, 2.0, 1.0, 4.0, 1.0, 0.5, 1.0]


def test_what_is_not_compared_keeps_its_own_figures_and_reasons() -> None:
    found = with_scaling([row(2, 190.0, reasons={"train_s": "short"})], keys(1, 2))[0]
    assert found.images_per_s == 190.0
    assert found.reasons["train_s"] == "short"


def on_gpus(count: int, rate: float, step_s: float, waiting_s: float) -> Row:
    key = TrialKey(1, "ssd", count, "warm", "gpus")
    changes = {"axis": "gpus", "ranks": count, "gpus": count, "cache_mode": "warm", "cache_state": "warm"}
    parts = {"step_s": step_s, "waiting_per_step_s": waiting_s}
    return row(1, rate, **changes, **parts).model_copy(update={"trial": key.folder(1)})


def test_gpus_of_one_host_are_counted_and_a_step_is_split_by_the_single_gpu() -> None:
    asked = [TrialKey(1, "ssd", count, "warm", "gpus") for count in (1, 4)]
    one, four = with_scaling([on_gpus(1, 100.0, 0.16, 0.01), on_gpus(4, 360.0, 0.18, 0.01)], asked)
    assert (four.speedup, four.scaling_base_count, four.scaling_base_nodes) == (3.6, 1, None)
    assert four.scaling_efficiency == pytest.approx(0.9)
    assert four.compute_per_step_s == one.compute_per_step_s == pytest.approx(0.15)
    assert four.communication_per_step_s == pytest.approx(0.02) and one.communication_per_step_s == 0.0
    assert four.reasons["scaling_base_nodes"] == "what is counted is gpus"
    (alone,) = with_scaling([on_gpus(4, 360.0, 0.18, 0.01)], asked[1:])
    assert alone.communication_per_step_s is None
    assert alone.reasons["communication_per_step_s"] == "not told apart: no single rank was measured in this round"
