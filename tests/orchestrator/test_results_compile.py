"""results.json and scaling.csv: what a morning reader and a script find, and that they find it whole."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from trials import Rank, cluster, created, run_trial

from scaleout.analysis.trial import row_of
from scaleout.errors import MissingResultsError
from scaleout.results.compile import compile_results
from scaleout.results.remains import remains_of
from scaleout.results.store import ROW_FILE, SweepStore
from scaleout.steps.compile_results import compile_sweep

PROMISED = """
workload model nodes gpus round status cache_mode cache_state batch_per_gpu global_batch length images window_s images_per_s
images_per_s_per_gpu images_per_s_later_pass scaling_efficiency speedup scaling_base_nodes utilisation epochs
time_to_first_batch_s train_s projected_train_s projection_basis host_data_wait_s gpu_idle_s mean_image_bytes
required_bytes_per_s measured_read_bytes_per_s hit_ratio gpu_util cpu_util nodes_used co_located commands evidence
provenance reasons
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path))


def swept(conf: dict[str, Any], *ranks: Any, run_id: str = "nightly") -> SweepStore:
    """A sweep on two nodes of one GPU whose trials left, in order, what `ranks` says; None: was not launched."""
    store, sweep = created(conf, cluster(2, processes_per_node=1), run_id)
    for trial, told in zip(sweep.trials, ranks, strict=True):
        if told is not None:
            folder = run_trial(store, trial, told)
            collected(store, trial, folder)
    return store


def collected(store: SweepStore, trial: Any, folder: str) -> None:
    row = row_of(remains_of(store, store.sweep(), trial, folder))
    store.write(row.model_dump(mode="json"), folder, ROW_FILE)


def document(store: SweepStore) -> dict[str, Any]:
    compile_results(store)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} in results.json")

    found: dict[str, Any] = json.loads((store.folder / "results.json").read_text(), parse_constant=refuse)
    return found


def table(store: SweepStore) -> list[dict[str, str]]:
    with (store.folder / "scaling.csv").open(newline="") as lines:
        return list(csv.DictReader(lines))


FAST, SLOW = Rank(windows=[(0, 100, 5.0)]), Rank(windows=[(0, 100, 10.0)])


def test_results_say_which_sweep_they_are_of() -> None:
    found = document(swept({}, FAST, SLOW, run_id="manual__2026-12-01T10:46:26+00:00"))
    assert {key: found[key] for key in found if key != "trials"} == {
        "schema": 1,
        "run_id": "manual__2026-12-01T10:46:26+00:00",
        "cluster": "a100",
        "started_at": "2026-12-01T03:00:00+00:00",
        "release": "0123456789abcdef",
        "missing": [],
    }


def test_a_trial_has_at_least_the_promised_fields_and_its_scaling() -> None:
    one, two = document(swept({}, FAST, SLOW))["trials"]
    assert set(PROMISED.split()) <= set(one)
    assert (one["images_per_s"], two["images_per_s"]) == (20.0, 20.0)
    assert (one["speedup"], two["speedup"]) == (1.0, 1.0)
    assert (one["scaling_efficiency"], two["scaling_efficiency"]) == (1.0, 0.5)
    assert two["nodes_used"] == ["node1", "node2"]
    assert two["provenance"]["release"] == "0123456789abcdef"
    assert [two["provenance"]["ranks"][rank]["node"] for rank in ("0", "1")] == ["node1", "node2"]


def test_the_csv_has_a_row_per_trial_and_the_same_figures() -> None:
    store = swept({}, FAST, SLOW)
    trials = document(store)["trials"]
    rows = table(store)
    assert [row["trial"] for row in rows] == ["ssd-n1-cold-r1-t1", "ssd-n2-cold-r1-t1"]
    for row, trial in zip(rows, trials, strict=True):
        read = trial["provenance"]["manifests_read"]
        assert read and row.pop("manifests_read").split() == read
        for name, text in row.items():
            value = trial[name]
            assert text == "" if value is None else text == str(value), name
    assert float(rows[1]["required_bytes_per_s"]) == 20_000.0


def test_what_was_not_measured_is_empty_in_the_csv_and_null_in_the_json() -> None:
    store = swept({}, FAST, [SLOW, None])
    trials, rows = document(store)["trials"], table(store)
    assert trials[1]["images_per_s"] is None and rows[1]["images_per_s"] == ""
    assert rows[1]["status"] == "failed"
    assert not {"nan", "NaN", "None", "null", "inf"} & {text for row in rows for text in row.values()}


def test_a_failed_trial_is_missing_with_its_reason() -> None:
    found = document(swept({}, FAST, [SLOW, None]))
    assert found["missing"] == ["ssd on 2 nodes, cold, round 1: rank 1 left no event log"]
    assert found["trials"][1]["reasons"]["images_per_s"] == "rank 1 left no event log"


def test_without_its_base_a_trial_keeps_its_rate_and_has_no_efficiency() -> None:
    found = document(swept({}, [None], SLOW))
    assert found["trials"][1]["images_per_s"] == 20.0
    assert found["trials"][1]["scaling_efficiency"] is None
    assert found["trials"][1]["reasons"]["speedup"] == "the base, 1 node, has no rate"


def test_a_base_of_another_cache_state_is_not_compared_with() -> None:
    found = document(swept({}, Rank(read_bytes=(0, 10)), SLOW))
    assert [trial["cache_state"] for trial in found["trials"]] == ["unproven", "cold"]
    assert found["trials"][1]["speedup"] is None


@pytest.mark.parametrize(
    ("update", "reason"),
    [
        ({}, "it was not launched"),
        ({"ready": False}, "the sweep did not get ready"),
        (
            {"stopped": "the sweep was stopped in r1_ssd_n1_cold.launch"},
            "the sweep was stopped in r1_ssd_n1_cold.launch",
        ),
    ],
)
def test_a_trial_that_was_not_launched_is_missing_with_the_reason(update: dict[str, Any], reason: str) -> None:
    store = swept({}, FAST, None)
    store.update(**update)
    assert document(store)["missing"] == [f"ssd on 2 nodes, cold, round 1: {reason}"]
    assert len(table(store)) == 1


def test_a_trial_that_was_launched_and_not_collected_is_missing() -> None:
    store = swept({}, FAST, None)
    trial = store.sweep().trials[-1]
    run_trial(store, trial, SLOW)
    assert document(store)["missing"] == [
        "ssd on 2 nodes, cold, round 1: it was launched and its results were not collected"
    ]


def test_the_last_try_counts_even_where_an_earlier_one_succeeded() -> None:
    store = swept({}, FAST, SLOW)
    trial = store.sweep().trials[-1]
    run_trial(store, trial, [None, None], failure="node2 went away")
    assert document(store)["missing"] == ["ssd on 2 nodes, cold, round 1: node2 went away"]
    collected(store, trial, run_trial(store, trial, FAST))
    found = document(store)
    assert found["missing"] == []
    assert [t["trial"] for t in found["trials"]] == ["ssd-n1-cold-r1-t1", "ssd-n2-cold-r1-t3"]


def test_nothing_half_written_stays_beside_the_results() -> None:
    store = swept({}, FAST, SLOW)
    compile_results(store)
    names = {path.name for path in store.folder.iterdir() if path.is_file()}
    assert names == {"sweep.json", "preflight.json", "results.json", "scaling.csv"}


def test_latest_leads_to_the_sweep_that_was_compiled_last(tmp_path: Path) -> None:
    latest = tmp_path / "results/latest"
    first, second = swept({}, FAST, SLOW, run_id="a"), swept({}, FAST, SLOW, run_id="b:c")
    for store in (first, second, first):
        compile_results(store)
        assert latest.is_symlink() and latest.resolve() == store.folder
        assert json.loads((latest / "results.json").read_text())["run_id"] == store.sweep().run_id
    assert not latest.readlink().is_absolute()


def test_a_sweep_called_latest_does_not_write_into_the_last_one(tmp_path: Path) -> None:
    first = swept({}, FAST, SLOW, run_id="a")
    compile_results(first)
    second = swept({}, FAST, SLOW, run_id="latest")
    compile_results(second)
    assert first.sweep().run_id == "a"
    assert (tmp_path / "results/latest").resolve() == second.folder != first.folder


def test_a_sweep_with_all_its_figures_is_green_and_tells_where_the_report_is() -> None:
    store, said = swept({}, FAST, SLOW), list[str]()
    compile_sweep(store, said.append)
    assert said[-1].endswith(f"report: {store.folder / 'report.html'}")
    assert (store.folder / "report.html").exists()


def test_a_sweep_without_a_figure_is_red_and_has_its_files_all_the_same() -> None:
    store = swept({}, FAST, [SLOW, None])
    with pytest.raises(MissingResultsError) as red:
        compile_sweep(store, lambda text: None)
    assert str(red.value) == (
        "1 of 2 trials have no figures:\n  ssd on 2 nodes, cold, round 1: rank 1 left no event log"
    )
    assert {"results.json", "scaling.csv", "report.html"} <= {path.name for path in store.folder.iterdir()}


def test_a_sweep_with_no_figure_at_all_has_a_report_too() -> None:
    store = swept({}, None, None)
    with pytest.raises(MissingResultsError, match="2 of 2 trials"):
        compile_sweep(store, lambda text: None)
    assert (store.folder / "report.html").read_text().count("it was not launched") == 2
