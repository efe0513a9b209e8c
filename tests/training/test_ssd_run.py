"""The program as a user starts it: whole processes, real DALI, real gloo. A step costs seconds, so there are few."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from ssd_data import FIRST_ID, write_dataset

from training.wire.events import (
    CheckpointSaved,
    ClockStart,
    ClockStop,
    EpochEnd,
    Evaluation,
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
FAST = ["--backbone", "resnet18", "--bs", 2, "--warmup-steps", 0, "--synthetic-steps", 0]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_dataset(tmp_path_factory.mktemp("ssd") / "data")


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """Three images, two steps an epoch with batch 2."""
    return write_dataset(tmp_path_factory.mktemp("ssd") / "few", 3)


def validate_on_train(root):
    """Gives a data set a validation split, which is the other one's copy."""
    shutil.copytree(root / "train2017", root / "val2017")
    shutil.copy(root / "annotations/instances_train2017.json", root / "annotations/instances_val2017.json")


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
    assert "weights: backbone random" in done.stdout and "2 images without a box are skipped" in done.stdout
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
        [sys.executable], tmp_path, "-d", data, *FAST, "--steps", 2, "--lr", "1e30", "--events", tmp_path
    )  # fmt: skip
    assert done.returncode == 1
    sentence = done.stderr.splitlines()[-1]
    assert sentence.startswith("error: the loss is") and "at step 1 (learning rate 6.25e+28)" in sentence
    assert "Traceback" not in done.stderr
    *_, last = read_events(tmp_path / "rank0" / "events.jsonl")
    assert last.body == RunEnd("failed", sentence.removeprefix("error: "))


def test_synthetic_batches_do_not_change_the_weights(data, tmp_path):
    done = start(
        [sys.executable], tmp_path, "-d", data, *FAST, "--steps", 2, "--window-steps", 1, "--lr", "1e30",
        "--events", tmp_path, "--loader", "synthetic",
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
    done = start([sys.executable], tmp_path, "--mode", "evaluation", "-d", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --mode evaluation needs --checkpoint")


def weights(folder, epoch):
    return torch.load(folder / f"epoch_{epoch}.pt", weights_only=True)["model"]


def consumed(folder, rank):
    return [json.loads(line) for line in (folder / f"rank{rank}" / "images.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("ranks", [1, 2])
def test_two_epochs_and_two_more_end_with_the_weights_of_four(few, tmp_path, ranks):
    launch = [sys.executable] if ranks == 1 else [*LAUNCH[:3], f"--nproc_per_node={ranks}"]
    at_once, in_parts = tmp_path / "at_once", tmp_path / "in_parts"
    same = ["-d", few, *FAST, "--loader", "torch" if ranks == 2 else "dali", "--multistep", 1, 3]
    runs = [
        [*same, "--epochs", 4, "--save", at_once, "--seed", 7],
        [*same, "--epochs", 2, "--save", in_parts, "--seed", 7],
        [*same, "--epochs", 4, "--save", in_parts, "--checkpoint", in_parts, "--events", tmp_path, "--record-images"],
    ]
    for arguments in runs:
        done = start(launch, tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
    assert f"weights: {in_parts / 'epoch_2.pt'}, after 2 epochs" in done.stdout
    one, other = weights(at_once, 4), weights(in_parts, 4)
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    assert not torch.equal(one["backbone.0.weight"], weights(at_once, 3)["backbone.0.weight"])
    bodies = [event.body for event in read_events(tmp_path / "rank0" / "events.jsonl")]
    assert (bodies[0].first_epoch, bodies[0].seed, bodies[0].length) == (2, 7, {"epochs": 4.0})
    assert [b.epoch for b in bodies if isinstance(b, EpochEnd)] == [2, 3]
    assert [(b.epoch, Path(b.path).name) for b in bodies if isinstance(b, CheckpointSaved)] == [
        (3, "epoch_3.pt"),
        (4, "epoch_4.pt"),
    ]
    rates = {body.epoch: body.learning_rate for body in bodies if isinstance(body, Window)}
    assert rates[2] == pytest.approx(10 * rates[3])


@pytest.mark.parametrize(("ranks", "images"), [(2, 5), (3, 5), (2, 3)])
def test_a_prime_number_of_images_on_several_ranks(tmp_path, ranks, images):
    data = write_dataset(tmp_path / "data", images)
    launch = [*LAUNCH[:3], f"--nproc_per_node={ranks}"]
    done = start(
        launch, tmp_path, "-d", data, *FAST, "--epochs", 2, "--record-images", "--events", tmp_path, "--no-binding"
    )
    assert done.returncode == 0, done.stderr
    for epoch in range(2):
        lines = [line for rank in range(ranks) for line in consumed(tmp_path, rank) if line["epoch"] == epoch]
        real = Counter(image for line in lines for image in line["images"][: len(line["images"]) - line["padded"]])
        assert real == Counter(range(FIRST_ID, FIRST_ID + images))
        assert sum(line["padded"] for line in lines) == 2 * len(lines) - images


def test_evaluation_of_a_checkpoint_and_while_training(tmp_path):
    data = write_dataset(tmp_path / "data", 3)
    validate_on_train(data)
    done = start(
        [sys.executable], tmp_path, "-d", data, *FAST, "--epochs", 1, "--evaluation", 0, "--save", tmp_path / "saved",
        "--events", tmp_path / "train", "--json-summary", tmp_path / "summary.json", "--ebs", 3,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (found,) = (e.body for e in read_events(tmp_path / "train/rank0/events.jsonl") if isinstance(e.body, Evaluation))
    assert (found.epoch, found.images) == (0, 5) and set(found.per_class) == {"bicycle", "person", "train", "car"}
    summary = [json.loads(line.removeprefix("DLLL ")) for line in (tmp_path / "summary.json").read_text().splitlines()]
    assert summary[0]["step"] == "PARAMETER" and summary[0]["data"]["backbone"] == "resnet18"
    assert {"mAP": found.metrics["AP"]} in [line["data"] for line in summary]
    results = []
    for launch in ([sys.executable], LAUNCH):
        again = start(
            launch, tmp_path, "-d", data, "--backbone", "resnet18", "--mode", "evaluation", "--ebs", 3,
            "--checkpoint", tmp_path / "saved/epoch_1.pt", "--events", tmp_path / f"eval{len(launch)}",
        )  # fmt: skip
        assert again.returncode == 0, again.stderr
        log = tmp_path / f"eval{len(launch)}/rank0/events.jsonl"
        results += [(e.body.metrics, e.body.per_class) for e in read_events(log) if isinstance(e.body, Evaluation)]
    assert results[0] == results[1] and results[0][0]["AP"] is not None


@pytest.mark.parametrize("mode", ["benchmark-training", "benchmark-inference"])
def test_benchmarks(data, tmp_path, mode):
    root = tmp_path / "data"
    shutil.copytree(data, root)
    validate_on_train(root)
    done = start(
        [sys.executable], tmp_path, "-d", root, *FAST, "--mode", mode, "--benchmark-iterations", 2, "--ebs", 2,
        "--benchmark-warmup", 1, "--json-summary", tmp_path / "summary.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line.removeprefix("DLLL ")) for line in (tmp_path / "summary.json").read_text().splitlines()]
    rates = lines[-1]["data"]
    assert set(rates) == {"avg_img/sec", "med_img/sec", "min_img/sec", "max_img/sec"}
    assert 0 < rates["min_img/sec"] <= rates["avg_img/sec"] <= rates["max_img/sec"]
    assert "(2 iterations, all ranks)" in done.stdout and "waiting for data" in done.stdout


def test_inference_compiled_without_a_compiler_is_refused_in_a_sentence(data, tmp_path, monkeypatch):
    root = tmp_path / "data"
    shutil.copytree(data, root)
    validate_on_train(root)
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = start([sys.executable], tmp_path, "-d", root, *FAST, "--mode", "benchmark-inference", "--compile")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "--compile default: there is no C++ compiler; install it, or give --no-compile" in done.stderr


GRADIENTS = """
import sys, torch
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from torch import nn
from training.common.binding import Binding
from training.ssd.args import parse
from training.common.training import _build
from training.ssd.train import prepare
recipe = prepare(parse(sys.argv[3:]), Binding([], ""))
gang = recipe.place.gang
assembly = _build(recipe, recipe.place)
for module in assembly.model.modules():
    if isinstance(module, nn.BatchNorm2d):
        module.eval()
loader = recipe.loader(())
assembly.training.loss(loader.next_batch().inputs).backward()
if gang.rank == 0:
    torch.save({name: p.grad for name, p in assembly.model.named_parameters()}, sys.argv[2])
loader.close()
gang.leave()
"""


def test_one_rank_with_batch_4_and_two_ranks_with_batch_2_have_the_same_gradients(data, tmp_path):
    (tmp_path / "gradients.py").write_text(GRADIENTS)
    found = []
    for launch in ([sys.executable], [*LAUNCH[:3], "--nproc_per_node=2", "--use_env"]):
        out = tmp_path / f"{len(launch)}.pt"
        command = [*launch, tmp_path / "gradients.py", MAIN.parents[2], out, "-d", data, "--backbone", "resnet18"]
        command += ["--global-batch-size", 4, "--seed", 5]
        environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        found.append(torch.load(out, weights_only=True))
    one, other = found
    assert one.keys() == other.keys()
    for name, gradient in one.items():
        assert (gradient - other[name]).norm() <= 1e-4 * gradient.norm(), name
