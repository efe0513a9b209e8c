"""The whole sweep as a user runs it: real training of both workloads on one node and on two."""

from __future__ import annotations

import csv
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from world import TWO_STEPS, World, assert_pairs_were_read, rows_of

FORM = TWO_STEPS | {"nodes": [1, 2]}


def events_of(folder: Path, rank: int) -> list[dict[str, Any]]:
    (path,) = folder.glob(f"*/rank{rank}/events.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_trial_has_its_row(finished: World) -> None:
    results = finished.results()
    assert results["missing"] == []
    assert [(row["workload"], row["nodes"], row["ranks"], row["status"]) for row in results["trials"]] == [
        ("segmentation", 1, 1, "succeeded"),
        ("segmentation", 2, 2, "succeeded"),
        ("ssd", 1, 1, "succeeded"),
        ("ssd", 2, 2, "succeeded"),
    ]
    for workload, model in (("segmentation", "deepv3.DeepV3PlusR50"), ("ssd", "ssd300-resnet50")):
        one, two = rows_of(finished, workload)
        assert one["model"] == two["model"] == model
        assert (one["speedup"], one["scaling_efficiency"], one["co_located"]) == (1.0, 1.0, False)
        assert two["co_located"] and two["scaling_base_nodes"] == 1
        assert two["scaling_efficiency"] is None and "share one machine" in two["reasons"]["scaling_efficiency"]
        assert two["speedup"] == pytest.approx(two["images_per_s"] / one["images_per_s"])


def test_where_nobody_starts_a_dead_task_again_a_gang_does_not_outlive_it_for_long(finished: World) -> None:
    sweep = json.loads((finished.latest() / "sweep.json").read_text())
    assert (sweep["lease_s"], sweep["lock_ttl_s"]) == (30, 300)


def test_rates_follow_from_the_event_logs(finished: World) -> None:
    for row in finished.results()["trials"]:
        logs = [events_of(finished.latest() / row["trial"], rank) for rank in range(row["ranks"])]
        first_pass = [[e for e in log if e["kind"] == "window" and e["pass_index"] == 0] for log in logs]
        images = sum(window["images"] for log in first_pass for window in log)
        seconds = max(sum(window["seconds"] for window in log) for log in first_pass)
        assert row["images_per_s"] == pytest.approx(images / seconds, rel=0.01)
        assert row["required_bytes_per_s"] == pytest.approx(row["images_per_s"] * row["mean_image_bytes"], rel=0.01)
        (start,) = [e for e in logs[0] if e["kind"] == "clock_start"]
        (stop,) = [e for e in logs[0] if e["kind"] == "clock_stop"]
        # the event is stamped a moment after the clock has started
        assert sum(e["seconds"] for e in first_pass[0]) <= stop["t_mono_s"] - start["t_mono_s"] + 0.05


def test_masks_are_part_of_the_bytes_that_segmentation_needs_and_reads(finished: World) -> None:
    (folder,) = (finished.home / "nas" / "prepared").glob("segmentation-*")
    assert_pairs_were_read(finished, folder, 4)


def test_no_image_is_read_before_the_clock_starts(finished: World) -> None:
    for row in finished.results()["trials"]:
        for rank in range(row["ranks"]):
            kinds = [e["kind"] for e in events_of(finished.latest() / row["trial"], rank)]
            assert (
                kinds.index("synthetic")
                < kinds.index("clock_start")
                < kinds.index("first_batch")
                < kinds.index("window")
            )
            assert kinds[-2:] == ["clock_stop", "run_end"]


def test_every_cold_trial_was_proved_cold_or_says_why_not(finished: World) -> None:
    flushed_by = [call["array_node"] for call in finished.array_calls() if call["program"] == "isi_flush"]
    assert flushed_by == [1, 2, 3, 4] * 4
    for row in finished.results()["trials"]:
        # Two nodes of one machine share its page cache, and may disturb each other's proof.
        disturbed = row["nodes"] == 2 and re.search(
            "fetched only|in memory after", row["reasons"].get("cache_state", "")
        )
        assert row["cache_state"] == "cold" or disturbed, row["reasons"]
        caches = row["evidence"]["caches"]
        assert sorted(caches["dropped"]) == row["nodes_used"]
        read = {"ssd": ["train2017"], "segmentation": ["leftImg8bit/train", "gtFine/train"]}[row["workload"]]
        for sampled in caches["resident"].values():
            assert {folder: sample["files"] for folder, sample in sampled["folders"].items()} == dict.fromkeys(read, 4)
        drops = [drop["t_wall_s"] for drop in caches["dropped"].values()]
        launch = json.loads((finished.latest() / row["trial"] / "launch.json").read_text())
        assert caches["flush"]["t_wall_s"] < min(drops) and max(drops) < launch["started_wall_s"]


def test_what_was_not_measured_is_null_and_says_why(finished: World) -> None:
    for row in finished.results()["trials"]:
        for name in ("gpu_idle_s", "gpu_util", "images_per_s_per_gpu", "train_s"):
            assert row[name] is None and row["reasons"][name], name


def test_table_and_report_are_there(finished: World) -> None:
    rows = list(csv.DictReader((finished.latest() / "scaling.csv").read_text().splitlines()))
    assert [(row["workload"], row["nodes"]) for row in rows] == [
        ("segmentation", "1"), ("segmentation", "2"), ("ssd", "1"), ("ssd", "2"),
    ]  # fmt: skip
    page = (finished.latest() / "report.html").read_text()
    assert "<svg" in page and "not meaningful" in page
    shown = finished.command("show")
    assert shown.returncode == 0 and str(finished.latest() / "report.html") in shown.stdout
    assert "arch deepv3.DeepV3PlusR50 (method: deepv3.DeepV3PlusW38)" in shown.stdout


def test_what_is_not_as_in_the_published_method_is_listed(finished: World) -> None:
    ssd, segmentation = (rows_of(finished, workload)[0]["overrides"] for workload in ("ssd", "segmentation"))
    assert ssd == {
        "batch per GPU": "2 (method: 16)",
        "workers": "2 (method: 20)",
        "processes per node": "1 (method: 8)",
        "length": "2 steps (method: 20 epochs)",
        "images": "4 (method: 972,825)",
    }
    assert segmentation == {
        "crop_size": "128,128 (method: 800,800)",
        "arch": "deepv3.DeepV3PlusR50 (method: deepv3.DeepV3PlusW38)",
        "batch per GPU": "2 (method: 8)",
        "workers": "2 (method: 10)",
        "processes per node": "1 (method: 8)",
        "length": "2 steps (method: 20 epochs)",
        "images": "4 (method: 2,025,975)",
    }
    page = (finished.latest() / "report.html").read_text()
    assert "batch per GPU 2 (method: 16)" in page and "crop_size 128,128 (method: 800,800)" in page


@pytest.mark.parametrize("workload", ["ssd", "segmentation"])
def test_the_command_in_the_results_does_the_same_when_pasted_on_the_node(finished: World, workload: str) -> None:
    row = rows_of(finished, workload)[0]
    command = row["commands"]["node1"]
    assert "python3 -m torch.distributed.run --nproc_per_node=1 --nnodes=1 --node_rank=0" in command
    hosts = finished.cluster.hosts()
    key, port = finished.cluster.folder / "keys" / "login_ed25519", hosts["scaleout_node1"].port
    known = finished.home / "known_hosts"
    known.write_text(f"[127.0.0.1]:{port} {hosts['scaleout_node1'].host_key}\n")
    shell = ["ssh", "-i", str(key), "-p", str(port), "-o", f"UserKnownHostsFile={known}", "127.0.0.1", "sh"]
    pasted = subprocess.run(shell, input=command + "\n", capture_output=True, text=True, timeout=200)
    assert pasted.returncode == 0, pasted.stdout + pasted.stderr
    events = (
        finished.cluster.folder
        / "node1/home/scaleout/runs"
        / finished.latest().name
        / row["trial"]
        / "node1/rank0/events.jsonl"
    )
    twice = [json.loads(line) for line in events.read_text().splitlines()]
    assert [e["kind"] for e in twice] == [e["kind"] for e in events_of(finished.latest() / row["trial"], 0)] * 2
    losses = [w["loss"] for w in twice if w["kind"] == "window"]
    assert losses[: len(losses) // 2] == pytest.approx(losses[len(losses) // 2 :])


def test_what_each_rank_said_comes_home_byte_for_byte_and_its_network_is_known(finished: World) -> None:
    for row in finished.results()["trials"]:
        for node in row["nodes_used"]:
            folder = Path(finished.latest().name) / row["trial"] / node
            home = finished.home / "results" / folder
            there = finished.cluster.folder / node / "home" / "scaleout" / "runs" / folder
            (said,) = home.glob("logs/*/attempt_0/0/stdout.log")
            assert said.read_bytes() == (there / said.relative_to(home)).read_bytes()
            rank = row["nodes_used"].index(node)
            assert rank or b"images/s over all ranks" in said.read_bytes()
            shown = {line for line in (home / "log").read_text().splitlines() if line.startswith(f"[rank {rank}] ")}
            assert {f"[rank {rank}] {line}" for line in said.read_text().splitlines()} <= shown
        assert row["provenance"]["network_interfaces"] == dict.fromkeys(row["nodes_used"], "lo")
        assert {rank["network_interface"] for rank in row["provenance"]["ranks"].values()} == {"lo"}


def test_nothing_is_left_on_the_nodes(finished: World) -> None:
    finished.assert_nothing_is_left()
