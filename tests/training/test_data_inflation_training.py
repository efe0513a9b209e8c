"""Both training programs train from an inflated set, and say which."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from inflation_data import TRAINING, inflate

from training.data.manifest import manifest_sha256
from training.wire.events import ClockStop, Dataset, RunStart, read_events

SSD = ["--backbone", "resnet18", "--bs", 2, "--data"]
SEGMENTATION = [
    "--arch", "deepv3.DeepV3PlusR50", "--crop_size", "64,64", "--bs_trn", 2, "--no-result_dir", "--set_cityscapes_root",
]  # fmt: skip
PROGRAMS = {"ssd": ("ssd/main.py", SSD), "segmentation": ("segmentation/train.py", SEGMENTATION)}


@pytest.mark.parametrize("workload", PROGRAMS)
def test_a_step_is_trained_from_an_inflated_set(
    workload: str, bases: dict[str, Path], tmp_path: Path, cache: Path
) -> None:
    out = tmp_path / "out"
    made = inflate(workload, bases[workload], out, "--factor", 3, "--mean-mb", 0.06).summary
    program, arguments = PROGRAMS[workload]
    same = ["--steps", 1, "--warmup-steps", 0, "--synthetic-steps", 0, "--events", tmp_path / "events"]
    command = [sys.executable, TRAINING / program, *arguments, out, *same]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=tmp_path, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert not {"indexing", "listing", "reading"} & set(done.stdout.split())
    bodies = [event.body for event in read_events(tmp_path / "events" / "rank0" / "events.jsonl")]
    (start,) = [body for body in bodies if isinstance(body, RunStart)]
    assert isinstance(start.dataset, Dataset)
    assert start.dataset.manifest_sha256 == made["manifest_sha256"] == manifest_sha256(out)
    with_box = made["images"] if workload == "segmentation" else range(7, 10)
    assert start.dataset.images == with_box or start.dataset.images in with_box
    assert [body.images for body in bodies if isinstance(body, ClockStop)] == [2]
