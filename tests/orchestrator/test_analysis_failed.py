"""A trial without figures has none: null with the reason, never 0 and never NaN, and never a rate from some of its ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from trials import Rank, cluster, created, log_path, run_trial, telemetry

from scaleout.analysis.row import Row
from scaleout.analysis.scaling import with_scaling
from scaleout.analysis.trial import row_of
from scaleout.plan.sweep import Sweep, Trial
from scaleout.results.remains import remains_of
from scaleout.results.store import PREFLIGHT_FILE, SweepStore

PLANNED = {"trial", "workload", "nodes", "ranks", "gpus", "round", "batch_per_gpu", "global_batch"}
FIGURES = sorted(name for name, field in Row.model_fields.items() if not field.is_required() and field.default is None)


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[SweepStore, Sweep, Trial]:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path))
    store, sweep = created({}, cluster(2, processes_per_node=1))
    return store, sweep, sweep.trials[-1]


def row(sweep: tuple[SweepStore, Sweep, Trial], folder: str) -> Row:
    store, plan, trial = sweep
    return row_of(remains_of(store, plan, trial, folder))


def assert_failed(found: Row, *reasons: str) -> None:
    assert found.status == "failed"
    assert found.cache_state == "unproven"
    assert [name for name in FIGURES if getattr(found, name) is not None] == []
    assert found.epochs == []
    for reason in reasons:
        assert reason in found.reasons["images_per_s"]


def test_a_rank_that_left_no_log_fails_the_trial(sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    assert_failed(row(sweep, run_trial(store, trial, [Rank(), None])), "rank 1 left no event log")


def test_no_logs_at_all_fail_the_trial(sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial, [None, None])
    assert_failed(row(sweep, folder), "rank 0 left no event log", "rank 1 left no event log")


def test_an_empty_log_fails_the_trial(sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial)
    log_path(store, trial, folder, 1).write_text("")
    assert_failed(row(sweep, folder), "rank 1 left no event log")


@pytest.mark.parametrize("lines", [1, 2, 3, 4, 5, 6, 7])
def test_a_log_that_was_cut_off_anywhere_fails_the_trial(lines: int, sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial)
    path = log_path(store, trial, folder, 0)
    whole = path.read_text().splitlines(keepends=True)
    assert len(whole) == 8
    path.write_text("".join(whole[:lines]) + whole[lines][:-10])
    assert_failed(row(sweep, folder), "rank 0's event log ends without", "run_end")


@pytest.mark.parametrize("kind", ["run_start", "clock_start", "first_batch", "window", "clock_stop", "run_end"])
def test_a_log_without_one_kind_of_event_fails_the_trial(kind: str, sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial, [Rank(without={kind}), Rank()])
    assert_failed(row(sweep, folder), f"rank 0's event log ends without {kind}")


def test_a_rank_that_says_it_failed_fails_the_trial(sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial, [Rank(), Rank(status="failed", error="the loss is nan at step 3")])
    assert_failed(row(sweep, folder), "rank 1 failed: the loss is nan at step 3")


def test_the_same_ranks_log_twice_is_a_missing_rank(sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial)
    first, second = (log_path(store, trial, folder, rank) for rank in (0, 1))
    second.write_text(first.read_text())
    assert_failed(row(sweep, folder), "rank 1 left no event log")


@pytest.mark.parametrize("damage", [b"not json\n", b"\xff\xfe\n", b'{"v": 1, "kind": "window"}\n'])
def test_a_damaged_log_fails_the_trial_and_says_where(damage: bytes, sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial)
    path = log_path(store, trial, folder, 1)
    path.write_bytes(path.read_bytes() + damage)
    assert_failed(row(sweep, folder), f"{path}:9: not an event")


@pytest.mark.parametrize("damage", [b"{\n", b"\xff\n", b"[]\n", b'{"t_wall_s": 1}\n'])
def test_damaged_telemetry_fails_the_trial_and_says_where(
    damage: bytes, sweep: tuple[SweepStore, Sweep, Trial]
) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial)
    telemetry(store, folder, "node2", [])
    path = store.folder / folder / "node2/telemetry.jsonl"
    path.write_bytes(damage)
    assert_failed(row(sweep, folder), str(path))


def test_a_last_line_of_telemetry_that_was_cut_off_is_left_out(sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial)
    telemetry(store, folder, "node2", [])
    (store.folder / folder / "node2/telemetry.jsonl").write_text('{"t_wall_s": 1.0, "interv')
    assert row(sweep, folder).status == "succeeded"


def test_a_launch_that_failed_gives_no_rate_even_where_logs_are_whole(sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial, failure="node2: killed by SIGKILL")
    assert_failed(row(sweep, folder), "node2: killed by SIGKILL")


def test_a_failed_trial_still_says_what_was_asked_and_what_was_run(sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    found = row(sweep, run_trial(store, trial, [Rank(), None]))
    assert {name: getattr(found, name) for name in PLANNED} == {
        "trial": "ssd-n2-cold-r1-t1",
        "workload": "ssd",
        "nodes": 2,
        "ranks": 2,
        "gpus": 2,
        "round": 1,
        "batch_per_gpu": 2,
        "global_batch": 4,
    }
    assert sorted(found.commands) == ["node1", "node2"]


@pytest.mark.parametrize(
    "ranks",
    [
        Rank(),
        Rank(device="cpu", gpu_idle_s=None),
        Rank(dataset=None, synthetic=None),
        Rank(read_bytes=(None, None)),
        [Rank(), None],
    ],
)
def test_whatever_is_null_has_its_reason(ranks: Any, sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    (found,) = with_scaling([row(sweep, run_trial(store, trial, ranks))], [t.key for t in sweep[1].trials])
    assert [name for name in FIGURES if getattr(found, name) is None and not found.reasons.get(name)] == []
    assert [name for name in FIGURES if getattr(found, name) is not None and name in found.reasons] == []


def test_a_trial_whose_preflight_is_lost_is_unproven_and_not_a_crash(sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    folder = run_trial(store, trial)
    (store.folder / PREFLIGHT_FILE).unlink()
    found = row(sweep, folder)
    assert (found.status, found.cache_state) == ("succeeded", "unproven")
    assert "node1: its mount is not known" in found.reasons["cache_state"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_row_can_hold_a_number_that_is_none(value: float, sweep: tuple[SweepStore, Sweep, Trial]) -> None:
    store, _, trial = sweep
    document = row(sweep, run_trial(store, trial)).model_dump()
    with pytest.raises(ValueError, match="finite number"):
        Row.model_validate(document | {"images_per_s": value})
