"""Rates: images of all ranks over seconds between barriers, recomputed here from the raw lines of the logs."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trials import DATASET, Rank, cluster, created, log_path, run_trial, telemetry

from scaleout.analysis.row import Row
from scaleout.analysis.trial import row_of
from scaleout.plan.sweep import Sweep, Trial
from scaleout.results.remains import remains_of
from scaleout.results.store import SweepStore
from training.wire.events import Synthetic


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path))


Measured = tuple[Row, SweepStore, Trial, str]


def measured(ranks: Any, *, per_node: int = 1, conf: dict[str, Any] | None = None) -> Measured:
    """The row of the largest trial of two nodes, from logs on disk."""
    store, sweep = created(conf or {}, cluster(2, processes_per_node=per_node))
    trial = sweep.trials[-1]
    folder = run_trial(store, trial, ranks)
    return _row(store, sweep, trial, folder), store, trial, folder


def _row(store: SweepStore, sweep: Sweep, trial: Trial, folder: str) -> Row:
    return row_of(remains_of(store, sweep, trial, folder))


def raw(found: Measured) -> list[list[dict[str, Any]]]:
    """The lines of each rank's log."""
    _, store, trial, folder = found
    paths = [log_path(store, trial, folder, rank) for rank in range(trial.ranks)]
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


WINDOWS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 500), st.floats(0.01, 100)), min_size=1, max_size=6).map(
    lambda windows: sorted([(0, 10, 1.0), *windows], key=lambda w: w[0])
)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(WINDOWS, min_size=4, max_size=4))
def test_the_rates_are_those_that_one_computes_from_the_windows(windows: list[Any]) -> None:
    found = measured([Rank(windows=w) for w in windows], per_node=2)
    images: dict[int, int] = defaultdict(int)
    seconds: dict[int, list[float]] = defaultdict(list)
    for lines in raw(found):
        of_rank: dict[int, float] = defaultdict(float)
        for line in lines:
            if line["kind"] == "window":
                images[line["pass_index"]] += line["images"]
                of_rank[line["pass_index"]] += line["seconds"]
        for index, total in of_rank.items():
            seconds[index].append(total)
    rates = {index: images[index] / max(seconds[index]) for index in images}
    row = found[0]
    assert row.status == "succeeded"
    assert row.images_per_s == pytest.approx(rates[0])
    assert row.images_per_s_per_gpu == pytest.approx(rates[0] / 4)
    assert row.images == sum(images.values())
    assert [epoch["images_per_s"] for epoch in row.epochs] == pytest.approx([rates[i] for i in sorted(rates)])
    later = [index for index in rates if index > 0]
    if later:
        expected = sum(images[i] for i in later) / sum(max(seconds[i]) for i in later)
        assert row.images_per_s_later_pass == pytest.approx(expected)
    else:
        assert row.images_per_s_later_pass is None


def test_the_first_pass_is_never_averaged_with_later_ones() -> None:
    slow_then_fast = Rank(windows=[(0, 100, 100.0), (1, 100, 1.0), (2, 100, 1.0)])
    row, *_ = measured(slow_then_fast)
    assert row.images_per_s == 2.0
    assert row.images_per_s_later_pass == 200.0
    assert [epoch["images_per_s"] for epoch in row.epochs] == [2.0, 200.0, 200.0]
    assert row.required_bytes_per_s == 2.0 * 1000.0


def test_what_explains_the_first_pass_is_of_the_first_pass_however_many_come_later() -> None:
    """Else what the storage delivered and what the GPU waited would shrink with each later pass from memory."""
    cold = {"synthetic": Synthetic(5, 1.0, 10, 1000, 10.0), "read_bytes": (0, 100_000), "prefetched_images": 0}
    first = Rank(windows=[(0, 100, 40.0)], gpu_idle_s=[30.0], data_wait_s=[35.0], last_pass_complete=True, **cold)
    many = Rank(
        windows=[(0, 100, 40.0), *((index, 100, 10.0) for index in range(1, 20))],
        gpu_idle_s=[30.0] + [0.0] * 19,
        data_wait_s=[35.0] + [0.0] * 19,
        last_pass_complete=True,
        pass_read_bytes=[100_000],
        **cold,
    )
    alone, *_ = measured(first)
    row, *_ = measured(many)
    for name in ("images_per_s", "step_s", "waiting_per_step_s", "measured_read_bytes_per_s", "hit_ratio"):
        assert getattr(row, name) == getattr(alone, name) is not None, name
    assert (row.step_s, row.waiting_per_step_s, row.measured_read_bytes_per_s, row.hit_ratio) == (40, 30, 5000, 0)
    assert row.hit_ratio_later_pass == 1.0 and alone.hit_ratio_later_pass is None
    assert alone.reasons["hit_ratio_later_pass"] == "the trial ended within the first pass over the data"
    assert [epoch["read_bytes"] for epoch in row.epochs] == [200_000] + [0] * 19
    assert [epoch["gpu_idle_s"] for epoch in row.epochs] == [30.0] + [0.0] * 19
    assert row.gpu_idle_s == 30.0 and row.host_data_wait_s == 35.0


def test_later_passes_that_do_not_fit_into_memory_are_told() -> None:
    rank = Rank(windows=[(i, 100, 10.0) for i in range(3)], read_bytes=(0, 260_000), pass_read_bytes=[100_000, 200_000])
    row, *_ = measured(replace(rank, last_pass_complete=True))
    # 2 x 100 images were wanted, and 10 prefetched ones
    assert row.hit_ratio == 0.0 and row.hit_ratio_later_pass == pytest.approx(1 - 160 / 210)


def test_without_a_later_pass_its_rate_is_null_with_the_reason() -> None:
    row, *_ = measured(Rank())
    assert row.images_per_s_later_pass is None
    assert row.reasons["images_per_s_later_pass"] == "the trial ended within the first pass over the data"


def test_the_slowest_rank_sets_the_time_of_the_gang() -> None:
    row, *_ = measured([Rank(windows=[(0, 100, 10.0)]), Rank(windows=[(0, 100, 40.0)])])
    assert row.images_per_s == 200 / 40
    assert row.window_s == 40.0


def test_waiting_and_idling_are_means_over_ranks_and_stand_beside_each_other() -> None:
    two = [(0, 50, 5.0), (0, 50, 5.0)]
    row, *_ = measured(
        [Rank(windows=two, data_wait_s=1.0, gpu_idle_s=0.5), Rank(windows=two, data_wait_s=2.0, gpu_idle_s=1.5)]
    )
    assert row.host_data_wait_s == 3.0
    assert row.gpu_idle_s == 2.0


def test_the_first_batch_is_in_time_when_the_last_rank_has_it() -> None:
    row, *_ = measured([Rank(first_batch_s=0.5), Rank(first_batch_s=3.5)])
    assert row.time_to_first_batch_s == 3.5


def test_start_up_is_from_the_first_event_to_the_start_of_the_clock_of_the_slowest_rank() -> None:
    found = measured(Rank())
    spans = [
        next(x["t_mono_s"] for x in lines if x["kind"] == "clock_start") - lines[0]["t_mono_s"] for lines in raw(found)
    ]
    assert found[0].start_up_s == pytest.approx(max(spans))


def test_a_clock_that_is_set_meanwhile_changes_no_time() -> None:
    row, store, trial, folder = measured(Rank())
    for rank in range(trial.ranks):
        path = log_path(store, trial, folder, rank)
        first, *others = map(json.loads, path.read_text().splitlines())
        for line in others:
            line["t_wall_s"] -= 3600
        path.write_text("".join(f"{json.dumps(line)}\n" for line in (first, *others)))
    again = _row(store, store.sweep(), trial, folder)
    assert (again.start_up_s, again.projected_train_s) == (row.start_up_s, row.projected_train_s)


def test_utilisation_is_against_the_synthetic_batches_of_the_same_gang() -> None:
    synthetic = [Synthetic(5, 1.0, 10, 200, 8.0), Synthetic(5, 1.0, 10, 200, 10.0)]
    row, *_ = measured([Rank(synthetic=s) for s in synthetic])
    assert row.synthetic_images_per_s == 400 / 10
    assert row.utilisation == pytest.approx((200 / 10) / (400 / 10))


@pytest.mark.parametrize("ranks", [[Rank(), Rank(synthetic=None)], [Rank(synthetic=Synthetic(5, 1.0, 0, 0, 0.0))] * 2])
def test_without_synthetic_steps_there_is_no_utilisation(ranks: list[Rank]) -> None:
    row, *_ = measured(ranks)
    assert row.utilisation is None and row.synthetic_images_per_s is None
    assert row.reasons["utilisation"] == "no synthetic steps were timed"
    assert row.images_per_s == 20.0


def test_required_bandwidth_counts_image_and_label_and_stands_apart_from_what_was_read() -> None:
    row, *_ = measured([Rank(read_bytes=(7, 50_007)), Rank(read_bytes=(9, 30_009))])
    assert row.mean_image_bytes == (900_000 + 100_000) / 1000
    assert row.required_bytes_per_s == 20.0 * 1000.0
    assert row.measured_read_bytes_per_s == 80_000 / 10.0
    # 200 images and 20 prefetched ones of 1,000 bytes were wanted
    assert row.hit_ratio == pytest.approx(1 - 80_000 / 220_000)


def test_read_ahead_does_not_make_a_hit_ratio_below_nothing() -> None:
    row, *_ = measured(Rank(read_bytes=(0, 10**9)))
    assert row.hit_ratio == 0.0


@pytest.mark.parametrize("counter", [(None, 5), (5, None), (None, None)])
def test_a_rank_without_counters_leaves_what_was_read_null_with_the_reason(counter: tuple[Any, Any]) -> None:
    row, *_ = measured([Rank(), Rank(read_bytes=counter)])
    assert row.measured_read_bytes_per_s is None and row.hit_ratio is None
    assert row.reasons["hit_ratio"] == "a rank could not read its counter of bytes read"
    assert row.required_bytes_per_s is not None
    assert row.evidence["read_bytes"] == {"node1": 100_000, "node2": None}


def test_counters_are_summed_by_node() -> None:
    ranks = [Rank(read_bytes=(0, n), distinct_bytes=n) for n in (1_000, 2_000, 30_000, 40_000)]
    row, *_ = measured(ranks, per_node=2)
    assert row.evidence["read_bytes"] == row.evidence["distinct_bytes"] == {"node1": 3_000, "node2": 70_000}


TWENTY_PASSES = [(index, 100, 10.0) for index in range(20)]


def test_the_training_time_is_that_of_all_epochs() -> None:
    row, *_ = measured(
        Rank(windows=TWENTY_PASSES, last_pass_complete=True), conf={"length": {"epochs": 20}, "budget_h": 10**6}
    )
    assert row.train_s == 200.0
    assert "train_s" not in row.reasons


@pytest.mark.parametrize(
    ("conf", "ranks"),
    [
        ({"length": {"steps": 6}}, Rank(windows=TWENTY_PASSES, last_pass_complete=True)),
        ({"length": {"epochs": 2}}, Rank(windows=TWENTY_PASSES[:2], last_pass_complete=True)),
        ({"length": {"epochs": 20}}, Rank(windows=TWENTY_PASSES, last_pass_complete=False)),
        ({"length": {"epochs": 20}}, Rank(windows=TWENTY_PASSES[:2], last_pass_complete=True)),
    ],
)
def test_the_training_time_is_null_unless_every_epoch_ran(conf: dict[str, Any], ranks: Rank) -> None:
    row, *_ = measured(ranks, conf=conf | {"budget_h": 10**6})
    assert row.train_s is None
    assert row.reasons["train_s"] == "the trial did not run all 20 epochs"


def test_the_projection_takes_the_later_rate_where_it_was_measured() -> None:
    row, *_ = measured(Rank(windows=[(0, 100, 100.0), (1, 100, 10.0)]))
    assert row.start_up_s is not None
    assert row.projected_train_s == pytest.approx(row.start_up_s + 1000 / 2.0 + 19 * 1000 / 20.0)
    assert row.projection_basis is not None and "a measured later-pass rate" in row.projection_basis


def test_the_projection_says_when_it_takes_the_first_rate_for_all() -> None:
    row, *_ = measured(Rank(windows=[(0, 100, 100.0)]))
    assert row.start_up_s is not None
    assert row.projected_train_s == pytest.approx(row.start_up_s + 20 * 1000 / 2.0)
    assert row.projection_basis is not None and "no later pass was measured" in row.projection_basis


def test_on_cpus_nothing_is_called_a_gpus() -> None:
    row, *_ = measured(Rank(device="cpu", gpu_idle_s=None))
    assert row.gpus == 0 and row.ranks == 2
    assert row.images_per_s_per_rank == 10.0
    assert row.images_per_s_per_gpu is None and row.gpu_idle_s is None and row.gpu_util is None
    assert row.reasons["images_per_s_per_gpu"] == row.reasons["gpu_idle_s"] == "the trial ran on CPUs"


def test_a_trial_without_a_data_set_needs_no_bandwidth() -> None:
    row, *_ = measured(Rank(dataset=None))
    for name in (
        *("mean_image_bytes", "required_bytes_per_s"),
        *("measured_read_bytes_per_s", "hit_ratio", "hit_ratio_later_pass"),
    ):
        assert getattr(row, name) is None and row.reasons[name] == "the trial read no data set"
    assert row.projected_train_s is None
    assert row.images_per_s == 20.0


def sample(t_wall_s: float, cpu: float | None, gpu: list[float] | None) -> dict[str, Any]:
    return {
        "t_wall_s": t_wall_s,
        "interval_s": 1.0,
        "cpu_util": cpu,
        "memory_available_bytes": 1,
        "network_received_bytes": 1,
        "nfs_read_bytes": None,
        "gang_read_bytes": 1,
        "gang_processes": 1,
        "gpu_util": gpu,
        "gpu_memory_bytes": None,
    }


def with_samples(gpu: list[float] | None, ranks: Any = None, per_node: int = 1) -> Row:
    """A trial whose clock ran between two samples that are to be left out."""
    found = measured(ranks or Rank(), per_node=per_node)
    _, store, trial, folder = found
    stamps = [line["t_wall_s"] for lines in raw(found) for line in lines if line["kind"].startswith("clock")]
    inside = (min(stamps) + max(stamps)) / 2
    lines = [sample(min(stamps) - 100, 0.0, [0.0]), sample(inside, 0.5, gpu), sample(max(stamps) + 100, 1.0, [1.0])]
    telemetry(store, folder, "node1", lines)
    telemetry(store, folder, "node2", [sample(inside, 0.75, gpu)])
    return _row(store, store.sweep(), trial, folder)


def test_utilisations_are_of_the_measured_time_only() -> None:
    row = with_samples([0.25, 0.75], [Rank(gpu_index=0), Rank(gpu_index=1)] * 2, per_node=2)
    assert row.cpu_util == 0.625 and row.gpu_util == 0.5


def test_a_gpu_that_no_rank_trains_on_does_not_count() -> None:
    assert with_samples([1.0] + [0.0] * 7).gpu_util == 1.0
    assert with_samples([0.0, 0.5, 1.0, 0.0], [Rank(gpu_index=2), Rank(gpu_index=1)]).gpu_util == 0.75


def test_where_a_rank_cannot_tell_its_gpu_their_utilisation_is_null_with_the_reason() -> None:
    row = with_samples([1.0], [Rank(), Rank(gpu_index=None)])
    assert row.gpu_util is None and row.cpu_util == 0.625
    assert row.reasons["gpu_util"] == "node2: a rank could not tell which of the node's GPUs is its own"


def test_a_gpu_that_nvml_cannot_see_is_not_called_a_cpu() -> None:
    row = with_samples(None)
    assert row.gpu_util is None and row.reasons["gpu_util"] == "no telemetry sample says how busy the GPUs were"


def test_without_telemetry_utilisations_are_null_with_the_reason() -> None:
    row, *_ = measured(Rank())
    assert row.cpu_util is None and row.gpu_util is None
    assert row.reasons["cpu_util"] == row.reasons["gpu_util"] == "no telemetry sample fell into the measured time"


def test_the_data_set_of_these_tests_is_what_the_figures_above_assume() -> None:
    assert (DATASET.images, DATASET.image_bytes, DATASET.label_bytes) == (1000, 900_000, 100_000)
