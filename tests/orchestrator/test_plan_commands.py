"""The command of every node, as one would type it there. Golden files; rewrite them with SCALEOUT_GOLDEN=write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trials import cluster, config_folder, environment, sweep_of

from scaleout.plan.commands import Rendezvous, node_command, shown

GOLDEN = Path(__file__).parent / "golden"
SEGMENTATION = """\
name: segmentation
title: DeepLabV3+ semantic segmentation
program: segmentation/train.py
launcher: torch.distributed.launch
flags: {data: --dataset_dir, batch_per_gpu: --bs_trn, num_workers: --num_workers, epochs: --max_epoch}
arguments: [--apex, --fp16, --crop_size, "800,800", --arch, deepv3.DeepV3PlusW38]
batch_per_gpu: 8
num_workers: 10
epochs: 20
dataset_images: 2025975
expected_images_per_s_per_rank: {cuda: 14, cpu: 0.1}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(config_folder(tmp_path)))
    (tmp_path / "workloads/segmentation.yaml").write_text(SEGMENTATION)


def commands(workload: str, conf: dict[str, Any]) -> list[list[str]]:
    """Of all nodes of the largest trial."""
    conf = {"workloads": [workload], "preset": "paper", "budget_h": 10**6, **conf}
    sweep = sweep_of(conf, on=cluster(4))
    trial = sweep.trials[-1]
    return [
        node_command(
            trial=trial,
            workload=sweep.workloads[workload],
            node_rank=rank,
            rendezvous=Rendezvous("10.0.0.1", 29500),
            python="/opt/train/bin/python",
            data=sweep.prepared_path(workload),
            events=f"/home/bench/runs/r/{trial.key.folder(1)}/{name}",
        )
        for rank, name in enumerate(trial.node_names)
    ]


@pytest.mark.parametrize(
    ("golden", "workload", "conf"),
    [
        ("ssd-n1-epochs", "ssd", {"nodes": [1]}),
        ("ssd-n3-steps", "ssd", {"nodes": [3], "length": {"steps": 200}, "batch_per_gpu": 32, "seed": 7}),
        ("segmentation-n4-epochs", "segmentation", {"nodes": [4]}),
        ("segmentation-n2-seconds", "segmentation", {"nodes": [2], "length": {"seconds": 300}}),
    ],
)
def test_the_commands_are_those_of_the_golden_file(golden: str, workload: str, conf: dict[str, Any]) -> None:
    text = "".join(json.dumps(command, indent=0) + "\n" for command in commands(workload, conf))
    path = GOLDEN / f"{golden}.txt"
    if os.environ.get("SCALEOUT_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_every_golden_file_is_compared() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {
        "ssd-n1-epochs",
        "ssd-n3-steps",
        "segmentation-n4-epochs",
        "segmentation-n2-seconds",
    }


def test_nodes_differ_in_their_rank_and_in_where_they_log() -> None:
    first, second = commands("ssd", {"nodes": [2]})
    changed = {(a, b) for a, b in zip(first, second, strict=True) if a != b}
    assert changed == {
        ("--node_rank=0", "--node_rank=1"),
        ("/home/bench/runs/r/ssd-n2-cold-r1-t1/node1", "/home/bench/runs/r/ssd-n2-cold-r1-t1/node2"),
    }


@pytest.mark.parametrize("length", [{"steps": 200}, {"seconds": 0.5}, {"seconds": 1209600.25}, {"epochs": 3}])
def test_the_length_on_the_command_line_is_the_one_that_was_asked_for(length: dict[str, float]) -> None:
    ((name, value),) = length.items()
    (command,) = commands("ssd", {"nodes": [1], "window_steps": 10, "length": length})
    lengths = {
        flag: command[command.index(flag) + 1] for flag in ("--steps", "--seconds", "--epochs") if flag in command
    }
    assert {flag: float(text) for flag, text in lengths.items()} == {f"--{name}": value}


HOSTILE = ["plain", "two words", "it's", '"quoted"', "$HOME", "`id`", "a;b", "*", "", "new\nline", "ü–é", "\\"]


def test_the_command_that_is_shown_does_the_same_when_pasted_into_a_shell(tmp_path: Path) -> None:
    cwd = tmp_path / "it's a $folder"
    cwd.mkdir()
    program = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), os.environ['A'], os.environ['B']]))"
    line = shown([sys.executable, "-c", program, *HOSTILE], str(cwd), {"B": "b; $PATH", "A": "a 'a'"})
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [HOSTILE, str(cwd), "a 'a'", "b; $PATH"]


def test_the_shipped_program_takes_the_flags_that_a_sweep_gives_it() -> None:
    (command,) = commands("ssd", {"nodes": [1], "length": {"steps": 200}})
    arguments = command[command.index("main.py") + 1 :]
    program = (
        "import sys; from training.ssd.args import parse; o = parse(sys.argv[1:]); print(o.batch_per_gpu, o.length)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout == "16 200 steps\n"
