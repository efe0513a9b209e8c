"""Whether both programs learn: trained on a few drawn frames and measured on the same, by one process and by two.

    python benchmarks/learning.py [--workload ssd segmentation] [--frames 32] [--processes 1 2] [--backend nccl] [--at-once]

The frames are a street with a few large road users, each class in a colour of its own, in Cityscapes' format. Two processes
share the batch of the one, and the GPU: over gloo, which allows it, or over NCCL, which allows it to ranks of different hosts
and is told that these are such; they then exchange over loopback. Prints mAP50 and mIoU over the classes that are there.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np
from cityscapesscripts.preparation.json2instanceImg import json2instanceImg
from cityscapesscripts.preparation.json2labelImg import json2labelImg
from pictures import detection_as_jpeg, for_detection
from programs import end_with_all

from training.data.scenes.paint import paint
from training.data.scenes.scene import HEIGHT, WIDTH, Thing, whole
from training.data.scenes.shapes import placed
from training.node.network import free_port
from training.wire.events import Evaluation, Window, read_events

BATCH = 16
STACKS_S = 3.0
ROAD_USERS = {  # outline, width and height in px, colour
    "car": ("car_back", 420, 300, (200, 40, 40)),
    "truck": ("truck", 700, 420, (40, 160, 60)),
    "bus": ("box", 520, 480, (230, 200, 40)),
    "train": ("box", 620, 440, (60, 60, 200)),
    "person": ("person", 200, 460, (240, 130, 60)),
    "rider": ("rider", 260, 420, (170, 60, 190)),
    "motorcycle": ("bicycle", 420, 300, (40, 190, 200)),
    "bicycle": ("bicycle", 360, 280, (250, 250, 250)),
}
FLAGS = {
    "ssd": "--learning-rate 0.03 --warmup 200 --multistep {milestones} --seed 1",
    "segmentation": "--fp16 --arch deepv3.DeepV3PlusR50 --crop_size 512,512 --lr 0.03 --seed 1 --class_uniform_pct 0",
}


def main() -> None:
    options = _options()
    end_with_all()
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-") as scratch, ExitStack() as running:
        os.environ["SCALEOUT_CACHE_DIR"] = str(Path(scratch) / "cache")
        scenes = _scenes(Path(scratch) / "scenes", options.frames)
        png = for_detection(scenes, Path(scratch) / "ssd-png")
        data = {"ssd": detection_as_jpeg(png, Path(scratch) / "ssd", ("train2017", "val2017")), "segmentation": scenes}
        runs = [(workload, processes) for workload in options.workload for processes in options.processes]
        started = []
        for workload, processes in runs:
            events = Path(scratch) / f"{workload}-{processes}"
            ranks = _start(workload, data[workload], events, processes, options)
            running.callback(_kill, ranks)
            started.append((workload, processes, events, ranks, time.monotonic()))
            if not options.at_once:
                _wait(ranks, events, options.limit_s)
        for workload, processes, events, ranks, began_s in started:
            _wait(ranks, events, options.limit_s)
            print(f"{workload}, {processes} process{'es' * (processes > 1)}: {_told(events)}", flush=True)
            print(f"  until {time.monotonic() - began_s:.0f} s after its start")


def _wait(ranks: list[subprocess.Popen[bytes]], events: Path, limit_s: float) -> None:
    """Ends with the first that fails, for which its peers would wait; or after the limit, with the stacks of all."""
    deadline = time.monotonic() + limit_s
    while None in (statuses := [rank.poll() for rank in ranks]) and not any(statuses) and time.monotonic() < deadline:
        time.sleep(0.2)
    late = [rank for rank, status in enumerate(statuses) if status is None]
    if failed := [rank for rank, status in enumerate(statuses) if status]:
        problem = f"rank {failed[0]} failed"
    elif late:
        problem = f"rank {late[0]} had not ended after {limit_s:.0f} s"
        for rank in late:
            ranks[rank].send_signal(signal.SIGUSR1)
        time.sleep(STACKS_S)
    else:
        return
    sys.exit(f"{events.name}: {problem}\n{events.with_suffix('.log').read_text()[-8000:]}")


def _kill(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        rank.kill()
        rank.wait()


def _scenes(out: Path, frames: int) -> Path:
    """A set in Cityscapes' layout whose val is its train."""
    for index in range(frames):
        rng = np.random.default_rng((1, index))
        folders = [out / part / "train" / "aachen" for part in ("leftImg8bit", "gtFine")]
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        pictures, truth = folders
        name = f"aachen_{index:06d}_000019"
        things = _things(rng, index)
        polygons = truth / f"{name}_gtFine_polygons.json"
        objects = [{"label": thing.label, "polygon": thing.polygon} for thing in things]
        polygons.write_text(json.dumps({"imgHeight": HEIGHT, "imgWidth": WIDTH, "objects": objects}), encoding="utf-8")
        json2labelImg(str(polygons), str(truth / f"{name}_gtFine_labelIds.png"))
        json2instanceImg(str(polygons), str(truth / f"{name}_gtFine_instanceIds.png"))
        paint(things, rng).save(pictures / f"{name}_leftImg8bit.png", compress_level=1)
    for part in ("leftImg8bit", "gtFine"):
        (out / part / "val").symlink_to("train")
    return out


def _things(rng: np.random.Generator, index: int) -> list[Thing]:
    """A street, and four road users side by side, so that each class is in every other frame."""
    horizon = int(rng.integers(380, 460))
    things = [
        _band("sky", 0, horizon, (178, 190, 204)),
        _band("building", horizon - 220, horizon, (126, 114, 102)),
        _band("sidewalk", horizon, horizon + 120, (142, 132, 128)),
        _band("road", horizon + 120, HEIGHT - 1, (98, 96, 100)),
    ]
    labels = list(ROAD_USERS)[index % 2 :: 2]
    for place, label in enumerate(rng.permutation(labels)):
        outline, width, height, colour = ROAD_USERS[str(label)]
        size = rng.uniform(0.6, 1.0) * min(1.0, 480 / width)
        x, y = (place + rng.uniform(0.45, 0.55)) * WIDTH / 4, horizon + rng.uniform(200, 480)
        shape = placed(outline, x, y, width * size, height * size, bool(rng.random() < 0.5))
        things.append(Thing(str(label), whole(shape), colour))
    return things


def _band(label: str, top: int, bottom: int, colour: tuple[int, int, int]) -> Thing:
    return Thing(label, [(0, top), (WIDTH - 1, top), (WIDTH - 1, bottom), (0, bottom)], colour)


def _start(
    workload: str, data: Path, events: Path, processes: int, options: argparse.Namespace
) -> list[subprocess.Popen[bytes]]:
    steps_per_epoch = -(-options.frames // BATCH)
    epochs = max(1, options.steps[workload] // steps_per_epoch)
    workers, batch = str(max(1, options.num_workers // processes)), str(BATCH // processes)
    flags = FLAGS[workload].format(milestones=f"{epochs * 7 // 10} {epochs * 9 // 10}")
    own = {
        "ssd": [
            *("--data", str(data), "--epochs", str(epochs), "--batch-size", batch, "--num-workers", workers),
            *("--evaluation", str(epochs - 1)),
        ],
        "segmentation": [
            *("--set_cityscapes_root", str(data), "--max_epoch", str(epochs), "--bs_trn", batch, "--no-result_dir"),
            *("--num_workers", workers, "--val_freq", str(epochs)),
        ],
    }[workload]
    program = ROOT / "training" / {"ssd": "ssd/main.py", "segmentation": "segmentation/train.py"}[workload]
    command = [sys.executable, str(program), *own, "--events", str(events), "--window-steps", "1000000"]
    command += ["--backend", options.backend, "--no-binding", *shlex.split(flags), *shlex.split(options.flags)]
    port = str(free_port()["port"])
    group = {"WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with events.with_suffix(".log").open("wb") as log:
        return [
            subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **group, **_own(rank)})
            for rank in range(processes)
        ]


def _own(rank: int) -> dict[str, str]:
    """Each rank is a host of its own, as NCCL sees it."""
    host = {"NCCL_HOSTID": f"learning-{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}
    return {"RANK": str(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", **host}


def _told(events: Path) -> str:
    bodies = [event.body for event in read_events(events / "rank0" / "events.jsonl")]
    losses = [(body.step_first + body.steps, body.loss) for body in bodies if isinstance(body, Window)]
    found = [body for body in bodies if isinstance(body, Evaluation)][-1]
    metric = "AP50" if "AP50" in found.metrics else "mIoU"
    shown = losses[:: max(1, len(losses) // 8)]
    curve = ", ".join(f"{step}: {loss:.3g}" for step, loss in [*shown, losses[-1]])
    classes = ", ".join(f"{name} {value:.2f}" for name, value in found.per_class.items() if value is not None)
    return f"{metric} {found.metrics[metric]:.3f} on {found.images} images ({classes})\n  loss by step: {curve}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Overfits both programs on drawn frames.")
    parser.add_argument("--workload", nargs="+", choices=FLAGS, default=list(FLAGS))
    parser.add_argument("--frames", type=int, default=32)
    parser.add_argument("--processes", nargs="+", type=int, choices=(1, 2), default=[1, 2])
    parser.add_argument("--backend", choices=("gloo", "nccl"), default="gloo", help="of two processes")
    parser.add_argument("--ssd-steps", type=int, default=1200)
    parser.add_argument("--segmentation-steps", type=int, default=600)
    parser.add_argument("--num-workers", type=int, default=8, help="of all processes of a run")
    parser.add_argument("--limit-s", type=float, default=1800.0, help="of a run, until it is given up")
    parser.add_argument("--at-once", action="store_true", help="all runs beside each other")
    parser.add_argument("--flags", default="", help="more, for the training programs")
    options = parser.parse_args()
    options.steps = {"ssd": options.ssd_steps, "segmentation": options.segmentation_steps}
    return options


if __name__ == "__main__":
    main()
