"""A sweep of one host: the real supervisor, launcher and training on CPU processes, without SSH and Airflow."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from world import CHECKOUT

from scaleout import settings
from scaleout.plan.resolve import UNATTENDED_LEASE_S

SMALL = ["--workloads", "ssd", "--rounds", "1", "--warmup-steps", "0", "--synthetic-steps", "1", "--num-workers", "1"]
ONE = ["--counts", "1", "--steps", "1", "--batch-per-gpu", "2", "--device", "cpu"]
LEASE_S, GRACE_S = UNATTENDED_LEASE_S, 10.0
PROGRAM = ["--", "--backbone", "resnet18"]


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    own = {"SCALEOUT_HOME": str(home), "SCALEOUT_CONFIG_DIR": str(CHECKOUT / "include")}
    path = {"PYTHONPATH": f"{CHECKOUT}:{CHECKOUT / 'include'}"}
    return subprocess.Popen(
        ["env", "--default-signal=INT", sys.executable, "-m", "scaleout.cli.one_host", "--python",
         str(settings.node_python()), "--out", str(home / "out"), *SMALL, *arguments],
        env={**os.environ, **own, **path}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip


def of_home(home: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("SCALEOUT_HOME") == str(home) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


def test_one_and_two_processes_give_a_table_of_processes(tmp_path: Path) -> None:
    process = start(
        tmp_path,
        "--counts",
        "1,2",
        "--steps",
        "2",
        "--batch-per-gpu",
        "2",
        "--device",
        "cpu",
        *PROGRAM,
        "--ddp-static-graph",
    )
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 0, output
    one, two = json.loads((tmp_path / "out" / "results.json").read_text())["trials"]
    assert [(row["axis"], row["nodes"], row["ranks"], row["status"]) for row in (one, two)] == [
        ("processes", 1, 1, "succeeded"),
        ("processes", 1, 2, "succeeded"),
    ]
    assert (one["scaling_efficiency"], one["speedup"], two["scaling_base_count"]) == (1.0, 1.0, 1)
    assert two["speedup"] > 0 and two["scaling_efficiency"] is None and two["co_located"]
    assert two["reasons"]["scaling_efficiency"].endswith("its processes share the cores of one machine")
    assert two["communication_per_step_s"] is None and two["reasons"]["communication_per_step_s"]
    assert one["compute_per_step_s"] + one["waiting_per_step_s"] == pytest.approx(one["step_s"])
    assert (two["loader"], two["ddp"], two["images"]) == ("synthetic", "torch", 8)
    assert "--ddp-static-graph" in two["commands"]["host"] and two["provenance"]["nodes"]["host"]["versions"]["torch"]
    with (tmp_path / "out" / "scaling.csv").open(newline="") as lines:
        assert [line["axis"] for line in csv.DictReader(lines)] == ["processes", "processes"]
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<th>processes</th>" in page and "<th>nodes</th>" not in page and "communication" in page
    assert (tmp_path / "out" / "ssd-p2-warm-r1-t1" / "host" / "rank1" / "events.jsonl").exists()
    shown = subprocess.run(["scaleout", "show", "out"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert "processes" in shown.stdout and str(tmp_path / "out" / "report.html") in shown.stdout, shown.stderr


def test_a_failed_trial_says_why(tmp_path: Path) -> None:
    failed = start(tmp_path, "--counts", "1", "--steps", "1", "--batch-per-gpu", "1", "--device", "cpu", *PROGRAM)
    output, _ = failed.communicate(timeout=100)
    assert failed.returncode == 1 and "--batch-size must be at least 2" in output
    (row,) = json.loads((tmp_path / "out" / "results.json").read_text())["trials"]
    assert row["status"] == "failed" and row["reasons"]["images_per_s"].startswith("host: ")


def test_what_befalls_one_trial_takes_no_figures_from_the_others(tmp_path: Path) -> None:
    """The second time that a free port is asked for there is no memory for it."""
    python, asked = tmp_path / "python", tmp_path / "asked"
    python.write_text(
        f'#!/bin/sh\ncase "$*" in *"free-port"*) echo >> {asked}\n'
        f'[ "$(wc -l < {asked})" -ne 2 ] || {{ echo "OSError: out of memory" >&2; exit 1; }};; esac\n'
        f'exec {settings.node_python()} "$@"\n'
    )
    python.chmod(0o755)
    process = start(tmp_path, *ONE, "--rounds", "3", "--python", str(python), *PROGRAM)
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 1 and "Traceback" not in output, output
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert [row["round"] for row in results["trials"] if row["status"] == "succeeded"] == [1, 3]
    assert results["missing"] == ["ssd on 1 process, warm, round 2: network: OSError: out of memory"]
    assert (tmp_path / "out" / "report.html").exists()


LONG = ["--counts", "2", "--steps", "10000", "--window-steps", "1", "--batch-per-gpu", "2", "--device", "cpu"]


def training_on_two(home: Path) -> subprocess.Popen[str]:
    running = start(home, *LONG, *PROGRAM)
    deadline = time.monotonic() + 60
    while not list(home.glob("one-host/runs/*/ssd-p2*/host/rank1/events.jsonl")):
        assert time.monotonic() < deadline and running.poll() is None
        time.sleep(0.1)
    return running


def test_ctrl_c_leaves_no_process(tmp_path: Path) -> None:
    running = training_on_two(tmp_path)
    os.killpg(running.pid, signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 130, output
    assert "stopped on request" in output
    assert of_home(tmp_path) == []


def test_a_killed_sweep_leaves_no_process_once_its_lease_has_run_out(tmp_path: Path) -> None:
    running = training_on_two(tmp_path)
    running.kill()
    running.communicate(timeout=20)
    assert len(of_home(tmp_path)) >= 3  # the supervisor, the launcher, the ranks
    deadline = time.monotonic() + LEASE_S + GRACE_S + 10
    while left := of_home(tmp_path):
        assert time.monotonic() < deadline, left
        time.sleep(0.2)
    (exit_file,) = tmp_path.glob("one-host/runs/*/ssd-p2*/host/exit.json")
    assert json.loads(exit_file.read_text())["state"] == "lease_expired"
    again = start(tmp_path, *ONE, "--out", str(tmp_path / "second"), *PROGRAM)
    output, _ = again.communicate(timeout=100)
    assert again.returncode == 0, output


def test_what_cannot_run_is_refused_in_a_sentence(tmp_path: Path) -> None:
    for arguments, sentence in (
        (["--counts", "1,1"], "one-host: 1 stands more than once in --counts; --rounds repeats trials"),
        (["--counts", "1", "--loader", "torch"], "give --data ssd=DIR"),
        (["--counts", "x"], "one-host: counts.0:"),
        (["--counts", "4096"], "4096 GPUs are asked for and this host has"),
        (["--env", "1A=3"], "one-host: environment.1A"),
    ):
        process = start(tmp_path, *arguments)
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 2 and sentence in output and "Traceback" not in output, output
