"""The program as a user starts it: whole processes, real DALI, real gloo. A step costs a second, so there are few."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from test_segmentation_dataset import write_set

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

SEGMENTATION = Path(__file__).resolve().parents[2] / "training" / "segmentation"
LAUNCH = [sys.executable, "-m", "torch.distributed.launch", "--nproc_per_node=2", "--nnodes=1", "--node_rank=0"]
PAPER = [
    "--bs_trn", 8, "--apex", "--fp16", "--crop_size", "800,800", "--num_workers", 10, "--max_epoch", 20,
    "--arch", "deepv3.DeepV3PlusW38",
]  # fmt: skip
SMALL = ["--arch", "deepv3.DeepV3PlusR50", "--crop_size", "64,64", "--warmup-steps", 0, "--synthetic-steps", 0]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    root = write_set(tmp_path_factory.mktemp("segmentation") / "data", 5)
    return write_set(root, 3, split="val", city="bonn")


def start(launcher, cwd, *arguments):
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RANK", "WORLD_SIZE", "LOCAL_RANK")}
    command = [*launcher, str(SEGMENTATION / "train.py"), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240)


def bodies(folder, rank=0):
    return [event.body for event in read_events(folder / f"rank{rank}" / "events.jsonl")]


def test_a_trial_of_one_process(data, tmp_path):
    done = start(
        [sys.executable], tmp_path, "--set_cityscapes_root", data, "--arch", "deepv3.DeepV3PlusR50", "--crop_size", 64,
        "--bs_trn", 2, "--class_uniform_pct", 0, "--max_epoch", 1, "--val_freq", 2, "--warmup-steps", 0,
        "--synthetic-steps", 1, "--seed", 1, "--events", tmp_path / "events", "--no-result_dir",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "it trains from scratch" in done.stdout and "checkpoints: none" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["events"]
    log = bodies(tmp_path / "events")
    kinds = [RunStart, Synthetic, ClockStart, FirstBatch, Window, EpochEnd, ClockStop, RunEnd]
    assert [type(body) for body in log] == kinds
    begin, stop = log[0], log[-2]
    assert (begin.program, begin.model, begin.parameters) == ("segmentation", "deepv3.DeepV3PlusR50", 40_351_040)
    assert (begin.ddp, begin.precision, len(begin.classes), begin.learning_rate) == ("none", "fp32", 19, 0.002)
    images, masks = (sorted(data.glob(pattern)) for pattern in ("leftImg8bit/train/*/*", "gtFine/train/*/*"))
    sizes = [sum(path.stat().st_size for path in paths) for paths in (images, masks)]
    assert [begin.dataset.image_bytes, begin.dataset.label_bytes] == sizes
    assert begin.dataset.mean_image_bytes == pytest.approx(sum(sizes) / 5)
    assert (stop.images, stop.distinct_files, stop.distinct_bytes) == (6, 10, sum(sizes))


def test_the_papers_command_on_two_ranks(data, tmp_path):
    """As printed, and then what makes it small: the last of two equal flags counts."""
    done = start(
        LAUNCH, tmp_path, *PAPER, "--set_cityscapes_root", data, *SMALL, "--bs_trn", 1, "--steps", 1,
        "--events", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        begin = bodies(tmp_path, rank)[0]
        assert (begin.ddp, begin.backend, begin.world_size, begin.global_batch) == ("torch", "gloo", 2, 2)
        assert "class-uniform" in begin.dataset.sharding
    assert "DDP torch (apex is not used on the CPU)" in done.stdout


@pytest.mark.parametrize("ranks", [1, 2])
def test_one_epoch_and_two_more_end_with_the_weights_of_three(data, tmp_path, ranks):
    launch = [sys.executable] if ranks == 1 else LAUNCH
    at_once, in_parts = tmp_path / "at_once", tmp_path / "in_parts"
    same = ["--set_cityscapes_root", data, *SMALL, "--bs_trn", 2, "--val_freq", 3, "--lr", 0.01]
    same += ["--loader", "torch" if ranks == 2 else "dali"]
    scl_poly = ["--lr_schedule", "scl-poly", "--rlx_off_epoch", 1, "--rescale", 0.5, "--repoly", 2]
    same += scl_poly if ranks == 2 else []
    # the schedule depends on --max_epoch, so the first part must be told of all three epochs and stopped
    steps = 3 if ranks == 1 else 2
    runs = [
        [*same, "--max_epoch", 3, "--result_dir", at_once, "--seed", 7],
        [*same, "--max_epoch", 3, "--result_dir", in_parts, "--seed", 7, "--steps", steps],
        [*same, "--max_epoch", 3, "--result_dir", in_parts, "--resume", in_parts, "--events", tmp_path],
    ]
    for arguments in runs:
        done = start(launch, tmp_path, *arguments)
        assert done.returncode == 0, done.stderr
    one, other = (torch.load(path / "epoch_3.pt", weights_only=True)["model"] for path in (at_once, in_parts))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    log = bodies(tmp_path)
    assert [body.epoch for body in log if isinstance(body, EpochEnd)] == [1, 2]
    assert [body.epoch for body in log if isinstance(body, CheckpointSaved)] == [2, 3]
    assert [body.epoch for body in log if isinstance(body, Evaluation)] == [2]
    rates = [body.learning_rate for body in log if isinstance(body, Window)]
    assert rates == pytest.approx([0.005, 0.00125] if ranks == 2 else [0.02 / 3, 0.01 / 3])
    if ranks == 1:
        assert_evaluated_alike_on_one_rank_and_on_two(data, tmp_path, at_once)


def assert_evaluated_alike_on_one_rank_and_on_two(data, tmp_path, snapshot):
    found = []
    for launcher in ([sys.executable], LAUNCH):
        events, predictions = tmp_path / f"eval{len(launcher)}", tmp_path / f"seen{len(launcher)}"
        done = start(
            launcher, tmp_path, "--mode", "evaluation", "--set_cityscapes_root", data, "--snapshot", snapshot, *SMALL,
            "--save_predictions", predictions, "--events", events,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (result,) = (body for body in bodies(events) if isinstance(body, Evaluation))
        found.append((result.metrics, result.per_class, len(list(predictions.iterdir()))))
    assert found[0][1:] == found[1][1:] and found[0][2] == 3
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-6)


def test_rotated_cities_are_trained_and_measured_and_the_weights_are_in_the_folder_of_the_reference(data, tmp_path):
    """Of bonn and ulm, --cv 2 begins with ulm."""
    same = ["--set_cityscapes_root", data, *SMALL, "--cv", 2]
    training = start([sys.executable], tmp_path, *same, "--max_epoch", 1, "--bs_trn", 3, "--events", tmp_path / "a")
    assert training.returncode == 0, training.stderr
    assert f"checkpoints: after every epoch, in {tmp_path}/logs\n" in training.stdout
    evaluation = start(
        [sys.executable], tmp_path, *same, "--mode", "evaluation", "--snapshot", "logs", "--events", tmp_path / "b"
    )
    assert evaluation.returncode == 0, evaluation.stderr
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["epoch_1.pt"]
    during, after = ([body for body in bodies(tmp_path / name) if isinstance(body, Evaluation)] for name in ("a", "b"))
    assert bodies(tmp_path / "a")[0].dataset.images == 3 and [body.images for body in during] == [5]
    assert [body.metrics for body in during] == [body.metrics for body in after]


def test_a_prime_number_of_images_without_class_uniform_sampling(data, tmp_path):
    done = start(
        LAUNCH, tmp_path, "--set_cityscapes_root", data, *SMALL, "--bs_trn", 2, "--max_epoch", 2, "--val_freq", 9,
        "--class_uniform_pct", 0, "--record-images", "--events", tmp_path, "--no-result_dir",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for epoch in range(2):
        texts = [(tmp_path / f"rank{rank}/images.jsonl").read_text() for rank in range(2)]
        lines = [json.loads(line) for text in texts for line in text.splitlines()]
        lines = [line for line in lines if line["epoch"] == epoch]
        real = Counter(image for line in lines for image in line["images"][: len(line["images"]) - line["padded"]])
        assert sorted(real.values()) == [1] * 5
        assert sum(line["padded"] for line in lines) == 3


def test_the_papers_network_runs_on_a_cpu(data, tmp_path):
    done = start(
        [sys.executable], tmp_path, "--set_cityscapes_root", data, "--arch", "deepv3.DeepV3PlusW38", "--crop_size", 48,
        "--bs_trn", 1, "--steps", 2, "--warmup-steps", 0, "--synthetic-steps", 0, "--events", tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    log = bodies(tmp_path)
    assert log[0].parameters == 137_103_936
    assert next(body for body in log if isinstance(body, ClockStop)).images == 2


def test_a_diverging_loss_ends_the_run(data, tmp_path):
    done = start(
        [sys.executable], tmp_path, "--set_cityscapes_root", data, *SMALL, "--bs_trn", 2, "--lr", "1e30", "--steps", 3
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: the loss is") and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--arch", "deepv3.DeepV3PlusW39"], "deepv3.DeepV3PlusW38"),
        (["--set_cityscapes_root", "/nowhere"], "there is no folder /nowhere"),
        (["--syncbn", *SMALL], "--syncbn needs GPUs"),
        (["--lr_schedule", "scl-poly", *SMALL], "scl-poly begins anew at --rlx_off_epoch"),
        (["--result_dir", "/proc/nowhere", *SMALL], "no checkpoint can be written to /proc/nowhere"),
        (["--cv", 4, *SMALL], "--cv 4 is no split"),
        (["--resume", "/nowhere.pt", *SMALL], "/nowhere.pt cannot be read"),
    ],
)
def test_a_users_mistake_is_one_line_and_status_2(data, tmp_path, arguments, sentence):
    done = start([sys.executable], tmp_path, "--set_cityscapes_root", data, *arguments, "--steps", 1)
    assert done.returncode == 2 and sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("error: ")


def prepare(*arguments):
    command = [sys.executable, SEGMENTATION / "prepare.py", *arguments]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)


def test_a_prepared_set_has_what_no_node_need_work_out_again(data, tmp_path):
    out = tmp_path / "prepared"
    done = prepare("--cityscapes", data, "--out", out)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["images"], summary["skipped"]) == (5, False)
    assert sorted(p.name for p in out.iterdir()) == ["gtFine", "index", "leftImg8bit", "manifest.json", "shards"]
    again = json.loads(prepare("--cityscapes", data, "--out", out).stdout.splitlines()[-1])
    assert (again["skipped"], again["manifest_sha256"]) == (True, summary["manifest_sha256"])

    cache = tmp_path / "cache"
    masks = list(out.glob("gtFine/train/*/*"))
    for path in masks:
        os.utime(path, (1_000_000_000, path.stat().st_mtime))
    environment = {**os.environ, "SCALEOUT_CACHE_DIR": str(cache)}
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
        "from training.segmentation.dataset import SegmentationSet\n"
        "from training.segmentation.centroids import open_centroids\n"
        "data = SegmentationSet.open(Path(sys.argv[2]), 'train', 0, print)\n"
        "print(len(data), len(open_centroids(data, 1024, print).image))"
    )
    opened = subprocess.run(
        [sys.executable, "-c", code, SEGMENTATION.parents[1], out], env=environment, capture_output=True, text=True
    )
    assert opened.returncode == 0, opened.stderr
    assert opened.stdout.startswith("5 ") and len(opened.stdout.splitlines()) == 1
    assert not cache.exists() and all(path.stat().st_atime == 1_000_000_000 for path in masks)


def test_what_another_program_wrote_is_not_replaced(data, tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    done = prepare("--cityscapes", data, "--out", tmp_path)
    assert done.returncode == 2 and done.stderr.startswith("error: ") and "give another --out" in done.stderr
