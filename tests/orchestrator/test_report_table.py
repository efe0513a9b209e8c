"""The scaling table: a dash for what was not measured, and what a reader must know below it."""

from __future__ import annotations

from typing import Any

import pytest

from scaleout.analysis.row import Row
from scaleout.report.plot import scaling_svg
from scaleout.report.table import cells, headings, notes, text_table


def row(**changes: Any) -> Row:
    values: dict[str, Any] = {
        "trial": "ssd-n2-cold-r1-t1",
        "workload": "ssd",
        "nodes": 2,
        "ranks": 16,
        "gpus": 16,
        "round": 1,
        "status": "succeeded",
        "cache_mode": "cold",
        "cache_state": "cold",
        "batch_per_gpu": 16,
        "global_batch": 256,
        "length": {"steps": 6.0},
        "images_per_s": 1234.5,
        "images_per_s_per_rank": 77.156,
        "speedup": 1.9,
        "scaling_efficiency": 0.95,
        "utilisation": 0.8,
        "window_s": 10.0,
        "host_data_wait_s": 9.0,
        "gpu_idle_s": 2.5,
        "step_s": 0.4,
        "waiting_per_step_s": 0.1,
        "time_to_first_batch_s": 0.5,
        "required_bytes_per_s": 2_500_000.0,
        "measured_read_bytes_per_s": 3_000_000.0,
        "nodes_used": ["node1", "node2"],
        "co_located": False,
        "commands": {},
    }
    return Row(**values | changes)


def shown(found: Row) -> dict[str, str]:
    return dict(zip(HEADINGS, cells(found), strict=True))


HEADINGS = headings("nodes")
FAILED = {name: None for name, field in Row.model_fields.items() if field.default is None and not field.is_required()}


def test_every_figure_stands_under_its_heading_in_its_unit() -> None:
    assert shown(row()) == {
        "workload": "ssd",
        "nodes": "2",
        "ranks": "16",
        "round": "1",
        "cache": "cold",
        "batch/GPU": "16",
        "images/s": "1,234.500",
        "per rank": "77.156",
        "speed-up": "1.90",
        "efficiency": "95%",
        "of synthetic": "80%",
        "first batch s": "0.50",
        "data wait": "25%",
        "needs MB/s": "2.50",
        "read MB/s": "3.00",
        "status": "succeeded",
    }


def test_a_failed_trial_has_dashes_and_no_zeros() -> None:
    found = shown(row(status="failed", cache_state="unproven", **FAILED))
    figures = [value for heading, value in found.items() if heading not in HEADINGS[:6] and heading != "status"]
    assert set(figures) == {"–"}
    assert found["cache"] == "cold? unproven"


@pytest.mark.parametrize("value", [0.0, 1e-9])
def test_a_measured_nothing_is_not_a_dash(value: float) -> None:
    found = shown(row(measured_read_bytes_per_s=value, waiting_per_step_s=value))
    assert (found["read MB/s"], found["data wait"]) == ("0.00", "0%")


def test_nodes_that_share_a_machine_have_no_meaningful_efficiency() -> None:
    found = row(co_located=True)
    assert shown(found)["efficiency"] == "n.m."
    assert notes([found, found]) == [
        "Nodes of a trial shared one machine (same boot id): their scaling efficiency is not meaningful."
    ]


def test_ranks_on_cpus_are_said_to_be_such() -> None:
    assert notes([row(gpus=0)]) == ["No GPU: each rank ran on the CPU in a GPU's place."]


def test_an_unproven_state_has_its_reason_below() -> None:
    found = row(cache_state="unproven", reasons={"cache_state": "node1: its page cache was not dropped"})
    assert notes([found]) == [
        "ssd on 2 nodes, cold, round 1: cache state unproven, since node1: its page cache was not dropped."
    ]


def test_what_is_not_as_published_is_said_once_for_each_workload() -> None:
    crop, batch = "128,128 (method: 800,800)", "2 (method: 8)"
    segmentation = row(workload="segmentation", overrides={"crop_size": crop, "batch per GPU": batch})
    assert notes([segmentation, segmentation, row(overrides={"workers": "2 (method: 20)"})]) == [
        f"segmentation, not as published: crop_size {crop}; batch per GPU {batch}.",
        "ssd, not as published: workers 2 (method: 20).",
    ]


def test_what_only_a_trial_that_ran_can_tell_is_said_where_another_failed() -> None:
    images = {"images": "24 (method: 972,825)"}
    assert notes([row(overrides=images), row(overrides={}, status="failed", **FAILED)]) == [
        "ssd, not as published: images 24 (method: 972,825)."
    ]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            {"factor": 327, "method": "augment", "format": "png", "seed": 0},
            "each frame 327 times, augment, png, seed 0",
        ),
        ({"factor": 1, "method": None, "format": None, "seed": None}, "the frames themselves"),
    ],
)
def test_the_data_set_is_named_once_for_each_workload(made: dict[str, Any], told: str) -> None:
    dataset = {"images": 972_825, "mean_image_bytes": 2_880_000, "manifest_sha256": "0123456789abcdef" * 4, **made}
    found = row(provenance={"dataset": dataset})
    assert notes([found, found]) == [f"ssd, data set: 972,825 images of 2.88 MB ({told}), manifest 0123456789ab."]


def test_nothing_is_noted_where_nothing_is_to_be_noted() -> None:
    assert notes([row()]) == []


def test_the_text_table_has_a_line_per_trial_and_keeps_its_width() -> None:
    lines = text_table([row(), row(nodes=1)], 190).splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) <= 190
    assert "1,234.500" in lines[2] and "95%" in lines[2]


def test_a_line_parts_the_workloads() -> None:
    lines = text_table([row(workload="segmentation"), row(workload="segmentation", nodes=1), row()], 190).splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["segmentation", "segmentation"]
    assert set(lines[4]) == {"─", "┼"} and lines[5].startswith("ssd ")


def test_there_is_nothing_to_plot_without_a_rate() -> None:
    assert scaling_svg([row(images_per_s=None)]) is None


def test_the_plot_is_one_svg_element_and_every_rate_is_in_it() -> None:
    rows = [row(), row(nodes=4, ranks=32, images_per_s=2000.0), row(nodes=4, ranks=32, round=2, images_per_s=1900.0)]
    drawn = [scaling_svg(rows[:count]) for count in (1, 2, 3)]
    assert all(svg and svg.startswith("<svg") and svg.rstrip().endswith("</svg>") for svg in drawn)
    marks = [svg.count("<use ") for svg in drawn if svg]
    assert marks[0] < marks[1] < marks[2]


def test_each_workload_has_axes_of_its_own() -> None:
    rows = [row(), row(workload="segmentation", images_per_s=12.0), row(workload="none", images_per_s=None)]
    drawn = [scaling_svg(rows[:count]) or "" for count in (1, 2, 3)]
    assert [svg.count('<g id="axes_') for svg in drawn] == [1, 2, 2]
    assert all(svg.count("<svg") == 1 for svg in drawn)
    assert "<!-- segmentation -->" in drawn[1] and "<!-- ssd -->" in drawn[1]
