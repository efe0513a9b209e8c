"""The program as a user starts it: whole processes, real DALI, real gloo. A step costs seconds, so there are few."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_ssd_dataset import write_dataset

from training.wire.events import (
    ClockStart,
    ClockStop,
    EpochEnd,
    FirstBatch,
    RunEnd,
    RunStart,
    Synthetic,
    Window,
    read_events,
)

MAIN = Path(__file__).resolve().parents[2] / "training" / "ssd" / "main.py"
LAUNCH = [sys.executable, "-m", "torch.distributed.launch", "--nproc_per_node=2", "--nnodes=1", "--node_rank=0"]
LONG_AGO = 1_000_000_000


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("ssd") / "data")


def start(launcher, cwd, *arguments):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RANK", "WORLD_SIZE", "LOCAL_RANK")}
    command = [*launcher, str(MAIN), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)


def test_a_trial_of_one_process(data, tmp_path):
    images = sorted(data.glob("train2017/*/*.png"))
    for path in images:
        os.utime(path, (LONG_AGO, path.stat().st_mtime))
    done = start(
        [sys.executable], tmp_path, "--data", data, "--steps", 2, "--batch-size", 2, "--num-workers", 20,
        "--warmup-steps", 0, "--synthetic-steps", 1, "--seed", 1, "--events", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "random weights" in done.stdout and "2 images without a box are skipped" in done.stdout
    events = list(read_events(tmp_path / "rank0" / "events.jsonl"))
    kinds = [type(event.body) for event in events]
    assert kinds == [RunStart, Synthetic, ClockStart, FirstBatch, Window, EpochEnd, ClockStop, RunEnd]
    begin, synthetic, _, first, window, epoch, stop, end = (event.body for event in events)
    assert (begin.classes, begin.parameters) == (["bicycle", "person", "train", "car"], 13_437_006)
    assert (begin.device, begin.precision, begin.ddp, begin.backend) == ("cpu", "fp32", "none", None)
    assert begin.learning_rate == pytest.approx(2.6e-3 * 2 / 32)
    assert (begin.dataset.images, begin.dataset.shard_images, begin.length) == (5, 6, {"steps": 2.0})
    assert (synthetic.steps, synthetic.images) == (1, 2)
    assert (window.images, window.steps, window.gpu_idle_s) == (4, 2, None)
    assert (epoch.complete, epoch.padded_images) == (False, 0)
    assert stop.images == window.images and stop.seconds == pytest.approx(window.seconds)
    assert stop.distinct_files == 4 and stop.seconds > first.seconds > 0
    assert end == RunEnd("succeeded", None)
    opened = [path.stat().st_atime for path in images if path.stat().st_atime != LONG_AGO]
    assert all(atime > events[2].t_wall_s - 0.05 for atime in opened)  # the kernel's clock for files ticks coarsely


def test_a_trial_of_two_ranks_by_the_papers_launcher(data, tmp_path):
    done = start(
        LAUNCH, tmp_path, "--batch-size", 2, "--mode", "training", "--num-workers", 20, "--epochs", 20, "--data", data,
        "--steps", 1, "--warmup-steps", 0, "--synthetic-steps", 0, "--events", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    logs = [[event.body for event in read_events(tmp_path / f"rank{rank}" / "events.jsonl")] for rank in range(2)]
    for rank, log in enumerate(logs):
        kinds = [type(body) for body in log]
        assert kinds == [RunStart, ClockStart, FirstBatch, Window, EpochEnd, ClockStop, RunEnd]
        assert (log[0].local_rank, log[0].node_rank, log[0].world_size, log[0].global_batch) == (rank, 0, 2, 4)
        assert (log[0].ddp, log[0].backend, log[0].dataset.shard_images) == ("torch", "gloo", 4)
        assert log[0].argv[0] == f"--local-rank={rank}"
        assert log[0].learning_rate == pytest.approx(2.6e-3 * 2 * 2 / 32)
    assert len({log[0].seed for log in logs}) == len({log[0].dataset.image_bytes for log in logs}) == 1
    assert done.stdout.count("done: 1 steps") == 1


def test_a_diverging_loss_ends_the_run(data, tmp_path):
    done = start(
        [sys.executable], tmp_path, "-d", data, "--steps", 2, "--bs", 2, "--lr", "1e30", "--warmup-steps", 0,
        "--synthetic-steps", 0, "--events", tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("error: the loss is") and "at step 1 (learning rate 6.25e+28)" in sentence
    assert "Traceback" not in done.stderr
    *_, last = read_events(tmp_path / "rank0" / "events.jsonl")
    assert last.body == RunEnd("failed", sentence.removeprefix("error: "))


def test_synthetic_batches_do_not_change_the_weights(data, tmp_path):
    done = start(
        [sys.executable], tmp_path, "-d", data, "--steps", 2, "--window-steps", 1, "--bs", 2, "--lr", "1e30",
        "--warmup-steps", 0, "--synthetic-steps", 0, "--events", tmp_path, "--loader", "synthetic",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    bodies = [event.body for event in read_events(tmp_path / "rank0" / "events.jsonl")]
    assert (bodies[0].loader, bodies[0].learning_rate) == ("synthetic", 0.0)
    one, other = (body.loss for body in bodies if isinstance(body, Window))
    assert one == pytest.approx(other, rel=1e-4)


def test_a_users_mistake_is_one_line_and_status_2(tmp_path):
    done = start([sys.executable], tmp_path, "-d", tmp_path / "nothing", "--events", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no folder") and len(done.stderr.splitlines()) == 1
    (end,) = read_events(tmp_path / "rank0" / "events.jsonl")
    assert end.body.status == "failed"
    done = start([sys.executable], tmp_path, "--mode", "benchmark-training", "-d", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: --mode benchmark-training is not implemented here; only --mode training is\n"
