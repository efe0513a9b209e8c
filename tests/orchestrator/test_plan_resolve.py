"""The plan: what the form says over what the preset says over the files; weak scaling; in the order of the DAG; in budget."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trials import cluster, config_folder, sweep_of

from scaleout.config import files
from scaleout.errors import ConfigError, PlanError
from scaleout.operators.slots import trial_slots
from scaleout.plan.resolve import resolve
from scaleout.plan.sweep import Sweep
from scaleout.plan.table import describe
from training.wire.names import slug

ANY_BUDGET = {"budget_h": 10**6}


def test_an_empty_form_on_the_local_cluster_is_the_demo() -> None:
    sweep = sweep_of({}, on=files.load_cluster("local"))
    assert [(t.workload, t.nodes, t.ranks, t.cache_mode, t.round) for t in sweep.trials] == [
        ("segmentation", 1, 1, "cold", 1),
        ("segmentation", 2, 2, "cold", 1),
        ("ssd", 1, 1, "cold", 1),
        ("ssd", 2, 2, "cold", 1),
    ]
    assert {t.length.steps for t in sweep.trials} == {6}
    assert not sweep.ready and sweep.stopped is None


def test_the_paper_is_20_epochs_with_the_methods_batch_and_workers() -> None:
    sweep = sweep_of({"preset": "paper"}, on=cluster(4))
    assert [(t.workload, t.nodes, t.ranks) for t in sweep.trials] == [
        (workload, nodes, 8 * nodes) for workload in ("segmentation", "ssd") for nodes in (1, 2, 3, 4)
    ]
    assert {(t.workload, t.length.epochs, t.batch_per_gpu, t.num_workers) for t in sweep.trials} == {
        ("segmentation", 20, 8, 10),
        ("ssd", 20, 16, 20),
    }
    assert all(trial.overrides == {} for trial in sweep.trials)


def test_on_cpus_the_model_and_the_crop_are_listed_as_not_the_methods() -> None:
    conf = {"preset": "paper", "nodes": [1], **ANY_BUDGET}
    segmentation, ssd = sweep_of(conf, on=cluster(1, device="cpu")).trials
    assert segmentation.overrides == {
        "crop_size": "128,128 (method: 800,800)",
        "arch": "deepv3.DeepV3PlusR50 (method: deepv3.DeepV3PlusW38)",
    }
    assert ssd.overrides == {}


def test_a_flag_that_only_one_of_us_and_the_method_passes_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(config_folder(tmp_path)))
    path = tmp_path / "workloads/ssd.yaml"
    path.write_text(path.read_text() + "arguments_on_cpu: [--backbone, resnet18, --no-cuda]\n")
    conf = {"workloads": ["ssd"], "preset": "paper", "nodes": [1], **ANY_BUDGET}
    assert sweep_of(conf, on=cluster(1, device="cpu")).trials[0].overrides == {
        "backbone": "resnet18 (method: not given)",
        "no-cuda": "given (method: not given)",
        "mode": "not given (method: training)",
    }


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 64))
def test_weak_scaling_keeps_the_batch_per_gpu_and_grows_the_global_batch(nodes: int, gpus: int, batch: int) -> None:
    conf = {"batch_per_gpu": batch, "processes_per_node": gpus, **ANY_BUDGET}
    trials = sweep_of(conf, on=cluster(nodes)).trials
    assert [t.nodes for t in trials] == 2 * list(range(1, nodes + 1))
    for trial in trials:
        assert trial.batch_per_gpu == batch
        assert trial.ranks == trial.nodes * gpus
        assert trial.global_batch == trial.nodes * gpus * batch
        assert trial.node_names == [f"node{i}" for i in range(1, trial.nodes + 1)]


def test_rounds_interleave_the_node_counts() -> None:
    sweep = sweep_of({"rounds": 2, "nodes": [2, 1], **ANY_BUDGET})
    assert [(t.round, t.workload, t.nodes) for t in sweep.trials] == [
        (round_, workload, nodes) for round_ in (1, 2) for workload in ("segmentation", "ssd") for nodes in (1, 2)
    ]


@pytest.mark.parametrize(
    "conf",
    [
        {},
        {"preset": "nightly"},
        {"cache_modes": ["warm", "cold"], "nodes": [4, 1]},
        {"workloads": ["tiny", "ssd"], "rounds": 3},
    ],
)
def test_the_plan_lists_the_trials_in_the_order_in_which_the_dag_runs_them(
    conf: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(config_folder(tmp_path)))
    ssd = (tmp_path / "workloads/ssd.yaml").read_text()
    (tmp_path / "workloads/tiny.yaml").write_text(ssd.replace("name: ssd", "name: tiny"))
    keys = [trial.key for trial in sweep_of(conf | ANY_BUDGET, on=cluster(4)).trials]
    assert keys == [key for key in trial_slots(cluster(4)) if key in keys]


def test_a_round_that_the_dag_has_no_slot_for_is_refused_before_anything_runs() -> None:
    with pytest.raises(PlanError) as refused:
        sweep_of({"rounds": 4, **ANY_BUDGET})
    assert str(refused.value) == (
        "trigger form: the DAG has no slot for round 4 (it has 3): raise rounds in a file of presets/, or ask for fewer"
    )


def test_a_preset_with_more_rounds_makes_the_slots_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(config_folder(tmp_path)))
    (tmp_path / "presets/long.yaml").write_text("description: x\nrounds: 5\n")
    rounds = {trial.round for trial in sweep_of({"rounds": 5, **ANY_BUDGET}).trials}
    assert rounds == {key.round for key in trial_slots(cluster())} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(
    ("key", "value"),
    [("batch_per_gpu", 7), ("num_workers", 3), ("window_steps", 4), ("warmup_steps", 9), ("seed", 5)],
)
def test_the_form_outdoes_the_preset(key: str, value: int) -> None:
    (before, *_), (trial, *_) = sweep_of({}).trials, sweep_of({key: value}).trials
    assert getattr(trial, key) == value != getattr(before, key)


def test_the_preset_outdoes_the_workload_and_the_workload_fills_the_rest() -> None:
    assert sweep_of({"preset": "quick"}).trials[0].batch_per_gpu == files.load_preset("quick").batch_per_gpu
    nightly = sweep_of({"preset": "nightly"}).trials
    assert {t.workload: t.batch_per_gpu for t in nightly} == {
        name: files.load_workload(name).batch_per_gpu for name in ("segmentation", "ssd")
    }


def test_the_form_names_another_data_set_and_it_gets_a_folder_of_its_own() -> None:
    usual, other = sweep_of({}), sweep_of({"cityscapes": "/mnt/other"})
    assert (usual.cityscapes, other.cityscapes) == ("/mnt/cityscapes", "/mnt/other")
    assert usual.prepared_path("ssd") != other.prepared_path("ssd")
    assert usual.prepared_path("ssd").startswith("/mnt/prepared/ssd-")


@pytest.mark.parametrize(
    ("form", "preset", "of_cluster", "factors"),
    [
        ({}, "paper", None, {"segmentation": 681, "ssd": 327}),
        ({}, "nightly", None, {"segmentation": 681, "ssd": 327}),
        ({}, "quick", None, {"segmentation": 1, "ssd": 1}),
        ({"dataset_factor": 3}, "paper", None, {"segmentation": 3, "ssd": 3}),
        ({"dataset_factor": "published"}, "quick", None, {"segmentation": 681, "ssd": 327}),
        ({}, "paper", 1, {"segmentation": 1, "ssd": 1}),
        ({}, "quick", "published", {"segmentation": 681, "ssd": 327}),
        ({"dataset_factor": "7"}, "paper", 2, {"segmentation": 7, "ssd": 7}),
    ],
)
def test_how_large_a_data_set_is_says_the_form_then_the_cluster_whose_storage_holds_it_then_the_preset(
    form: dict[str, Any], preset: str, of_cluster: Any, factors: dict[str, int]
) -> None:
    sweep = sweep_of({"preset": preset, **ANY_BUDGET, **form}, on=cluster(dataset_factor=of_cluster))
    assert sweep.dataset_factors == factors


def test_nothing_on_the_local_cluster_is_of_the_published_size_unless_the_form_says_so() -> None:
    local = files.load_cluster("local")
    for preset in files.names("presets"):
        assert set(sweep_of({"preset": preset, **ANY_BUDGET}, on=local).dataset_factors.values()) == {1}


@pytest.mark.parametrize(
    ("changes", "factor", "suffix"),
    [
        ({}, 1, ""),
        ({}, 3, "-x3"),
        ({}, "published", "-x327"),
        ({"method": "copy"}, 3, "-x3-copy"),
        ({"format": "jpeg"}, 3, "-x3-jpeg"),
        ({"method": "copy", "format": "jpeg", "seed": 5}, 3, "-x3-copy-jpeg-seed5"),
        ({"method": "copy"}, 1, ""),
    ],
)
def test_data_sets_of_other_sizes_and_kinds_lie_side_by_side(
    changes: dict[str, Any], factor: Any, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(config_folder(tmp_path)))
    with_inflation(tmp_path, **changes)
    sweep = sweep_of({"dataset_factor": factor, "workloads": ["ssd"]})
    assert sweep.prepared_path("ssd") == sweep.base_path("ssd") + suffix


def with_inflation(folder: Path, **changes: Any) -> None:
    """Changes how `ssd` is inflated, in a configuration folder of the test's own."""
    path = folder / "workloads/ssd.yaml"
    text = path.read_text()
    for key, value in changes.items():
        text, count = re.subn(rf"(?m)^  {key}: \w+", f"  {key}: {value}", text)
        assert count == 1
    path.write_text(text)


def test_what_is_not_made_as_the_published_data_set_was_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(config_folder(tmp_path)))
    with_inflation(tmp_path, format="jpeg")
    conf = {"preset": "paper", "workloads": ["ssd"], "nodes": [1], **ANY_BUDGET}
    assert sweep_of(conf).trials[0].overrides == {"variants": "augment, jpeg (method: augment, png)"}
    assert sweep_of(conf | {"dataset_factor": 1}).trials[0].overrides == {}


def test_a_workload_that_cannot_be_inflated_is_refused_unless_its_frames_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(config_folder(tmp_path)))
    path = tmp_path / "workloads/ssd.yaml"
    path.write_text(re.sub(r"(?m)^inflation:.*\n(  .*\n)+", "", path.read_text()))
    conf = {"workloads": ["ssd"]}
    with pytest.raises(PlanError) as refused:
        sweep_of(conf | {"dataset_factor": 3})
    assert str(refused.value) == (
        "dataset_factor 3 is asked for and workloads/ssd.yaml has no `inflation`, which names the program that makes such a "
        "data set: add it, or leave ssd out of `workloads`"
    )
    for factor in (1, "published", None):
        sweep = sweep_of(conf | {"dataset_factor": factor})
        assert (sweep.factor("ssd"), sweep.prepared_path("ssd")) == (1, sweep.base_path("ssd"))
        assert sweep.workloads["ssd"].images(1) == 972_825


def test_epochs_take_as_long_as_the_data_set_is_large() -> None:
    conf = {"length": {"epochs": 20}, "workloads": ["ssd"], "nodes": [1], **ANY_BUDGET}
    seconds = {
        factor: sweep_of(conf | {"dataset_factor": factor}).trials[0].estimated_s for factor in (1, 2, "published")
    }
    assert seconds[2] - seconds[1] == pytest.approx(20 * 2975 / 1600)
    assert seconds["published"] - seconds[1] == pytest.approx(20 * (972_825 - 2975) / 1600)


@pytest.mark.parametrize(
    ("conf", "sentence"),
    [
        ({"workloads": ["sdd"]}, "trigger form: no workload named 'sdd'; did you mean 'ssd'?"),
        ({"nodes": [3]}, "trigger form: 3 nodes are asked for and the cluster a100 has 2"),
        (
            {"length": {"steps": 6}, "window_steps": 7},
            "6 steps are too few for one window of 7: raise steps or lower window_steps",
        ),
        ({"processes_per_node": 9}, "processes_per_node 9 is more than the 8 GPUs of a node of a100"),
    ],
)
def test_what_cannot_be_run_is_refused_with_what_to_do(conf: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlanError) as refused:
        sweep_of(conf)
    assert str(refused.value) == sentence


def test_a_node_count_without_a_slot_is_refused_with_the_slots_that_there_are() -> None:
    with pytest.raises(PlanError) as refused:
        sweep_of({"nodes": [3]}, on=cluster(4, node_counts=[1, 4]))
    assert str(refused.value) == (
        "trigger form: the DAG has no slot for 3 nodes (it has 1, 4): list it in node_counts of clusters/a100.yaml"
    )


def test_a_preset_that_is_not_there_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"no preset named 'nightli' in .*; did you mean 'nightly'\?"):
        sweep_of({"preset": "nightli"})


def test_what_exceeds_the_budget_is_refused_with_the_hours() -> None:
    asked = {"preset": "paper", "nodes": [1], "workloads": ["ssd"]}
    hours = sweep_of(asked).estimated_h
    # 20 epochs of 972,825 images at 8 x 200 images/s, 70 steps of 16 at 200 images/s, start-up, and between trials
    assert hours == pytest.approx((20 * 972_825 / 1600 + 70 * 16 / 200 + 60 + 20) / 3600)
    with pytest.raises(PlanError, match=rf"would take about {hours:.1f} h and the budget is 2 h: ask for fewer"):
        sweep_of(asked | {"budget_h": 2})


@pytest.mark.parametrize("length", [{"steps": 500}, {"seconds": 300}, {"epochs": 2}])
def test_the_estimate_grows_with_the_length(length: dict[str, int]) -> None:
    (key, value), conf = next(iter(length.items())), {"preset": "nightly", "rounds": 1, **ANY_BUDGET}
    once, twice = sweep_of(conf | {"length": length}), sweep_of(conf | {"length": {key: 2 * value}})
    assert twice.estimated_h > once.estimated_h


def test_epochs_on_more_nodes_take_less_time_and_steps_do_not() -> None:
    one = {"workloads": ["segmentation"], **ANY_BUDGET}
    epochs = sweep_of({"length": {"epochs": 2}, **one}).trials
    steps = sweep_of({"length": {"steps": 500}, **one}).trials
    assert epochs[1].estimated_s < epochs[0].estimated_s
    assert steps[1].estimated_s == steps[0].estimated_s


def test_a_plan_survives_the_way_through_its_file() -> None:
    sweep = sweep_of({"preset": "nightly", "length": {"epochs": 3}, **ANY_BUDGET}, run_id="scheduled__2026-12-01T03:00")
    assert Sweep.model_validate_json(sweep.model_dump_json()) == sweep
    assert sweep.slug == slug("scheduled__2026-12-01T03:00")


def test_a_slot_finds_its_trial_or_none() -> None:
    sweep = sweep_of({"nodes": [2], "workloads": ["ssd"]})
    found = {key: sweep.trial(key) for key in trial_slots(cluster())}
    assert [(key.workload, key.count) for key, trial in found.items() if trial] == [("ssd", 2)]
    assert all(trial is None or trial.key == key for key, trial in found.items())


def test_the_plan_as_text_says_what_runs_and_how_long_it_takes() -> None:
    conf = {"preset": "nightly", "rounds": 1, "workloads": ["ssd"]}
    head, first, second, _, data, last = describe(sweep_of(conf)).splitlines()
    assert head == "sweep nightly on cluster a100: 2 trials, preset nightly, data from /mnt/cityscapes"
    assert " ".join(first.split()) == (
        "round 1 ssd 1 node 8 ranks cold batch 16 per GPU, 128 global (weak scaling) 300 s about 6.1 min"
    )
    assert "256 global" in second and "2 nodes" in second
    assert " ".join(data.split()).startswith(
        "ssd 972,825 images, each frame 327 times (augment, png, seed 0): 2.80 TB free space and "
    )
    assert (
        " 22.5 core hours, 0.09 h on 2 nodes of 128 cores where the storage takes 8.8 GB/s, in /mnt/prepared/ssd-"
        in data
    )
    assert data.endswith("-x327")
    assert last == "estimated 0.21 h of a budget of 6 h"


@pytest.mark.parametrize(
    ("changes", "factor", "told"),
    [
        ({}, 1, "the frames themselves, in "),
        ({"method": "copy"}, 2, "5,950 images, each frame 2 times (copy, png, seed 0): up to 17.1 GB free space, in "),
        ({"format": "jpeg"}, 2, "(augment, jpeg, seed 0): up to 17.1 GB free space and "),
    ],
)
def test_the_plan_as_text_says_what_the_data_set_takes(
    changes: dict[str, Any], factor: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(config_folder(tmp_path)))
    with_inflation(tmp_path, **changes)
    assert told in describe(sweep_of({"workloads": ["ssd"], "dataset_factor": factor}))


@pytest.mark.parametrize(
    ("own", "lease_s", "lock_ttl_s"),
    [
        ({}, 30, 300),
        ({"lease_s": 3}, 3, 300),
        ({"lease_s": 1000}, 1000, 1500),
        ({"lease_s": 1000, "lock_ttl_s": 60}, 1000, 60),
        ({"lock_ttl_s": 60}, 30, 60),
    ],
)
def test_lease_and_lock_are_the_clusters_or_long_enough(own: dict[str, int], lease_s: int, lock_ttl_s: int) -> None:
    sweep = sweep_of({}, cluster(**own))
    assert (sweep.lease_s, sweep.lock_ttl_s) == (lease_s, lock_ttl_s)


def test_where_somebody_starts_a_dead_task_again_the_lock_outlives_the_lease_too() -> None:
    sweep = resolve(run_id="nightly", conf={}, cluster=cluster(), created_at="now", lease_s=600)
    assert (sweep.lease_s, sweep.lock_ttl_s) == (600, 900)
