"""How much of a training's time one GPU idles when DALI feeds it with PNG, with JPEG: real runs of both programs.

    python benchmarks/gpu_training.py [--workload ssd segmentation] [--frames 256] [--seconds 20] [--num-workers 16]
                                      [--formats PNG JPEG] [--flags FLAGS]

Street scenes are generated in a temporary folder. Each run is a training program's own, with its event log; the windows
before the last `--seconds` of the trial are left out, so that queues are as full as they stay. SSD's epochs are long, of
links to the same pictures: where a window or an epoch ends the GPU is waited for. `of synthetic` compares with the same
program's rate on batches that lie on the GPU.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pictures import data_set, repeated, street_scenes
from programs import end_with_all

from training.wire.events import ClockStop, Event, Synthetic, Window, read_events

PROGRAMS = {"ssd": "ssd/main.py", "segmentation": "segmentation/train.py"}
SETTLING_S = 10.0
SSD_IMAGES = 4096  # 256 steps an epoch


def main() -> None:
    options = _options()
    end_with_all()
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-") as scratch:
        os.environ["SCALEOUT_CACHE_DIR"] = str(Path(scratch) / "cache")
        made = Path(scratch)
        scenes = street_scenes(made / "cityscapes", options.frames)
        print(f"{options.frames} frames, {options.num_workers} workers, {options.seconds:.0f} s each", flush=True)
        print(f"{'':24}images/s  of synthetic  GPU idle  host waits  of that for files", flush=True)
        for workload in options.workload:
            for name in options.formats:
                events = _run(workload, _set(workload, name, scenes, made), made / f"{workload}-{name}", options)
                print(f"{workload + ', ' + name:24}{_told(events, options.seconds)}", flush=True)


def _set(workload: str, name: str, scenes: Path, made: Path) -> Path:
    data = data_set(workload, name, scenes, made)
    return repeated(data, made / f"ssd-{name}-repeated", SSD_IMAGES) if workload == "ssd" else data


def _run(workload: str, data: Path, events: Path, options: argparse.Namespace) -> list[Event]:
    common = ["--events", str(events), "--seconds", str(options.seconds + SETTLING_S)]
    common += ["--synthetic-steps", "50", *shlex.split(options.flags)]
    workers = str(options.num_workers)
    own = {
        "ssd": ["--data", str(data), "--batch-size", "16", "--epochs", "100000", "--num-workers", workers],
        "segmentation": [
            *("--set_cityscapes_root", str(data), "--fp16", "--bs_trn", "8", "--crop_size", "800,800"),
            *("--max_epoch", "100000", "--no-result_dir", "--num_workers", workers),
        ],
    }[workload]
    command = [sys.executable, str(ROOT / "training" / PROGRAMS[workload]), *own, *common]
    with (events.with_suffix(".log")).open("w") as log:
        status = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, check=False).returncode
    if status:
        sys.exit(f"{shlex.join(command)}: exit status {status}\n{events.with_suffix('.log').read_text()[-3000:]}")
    return list(read_events(events / "rank0" / "events.jsonl"))


def _told(events: list[Event], seconds: float) -> str:
    synthetic = next(event.body for event in events if isinstance(event.body, Synthetic))
    stop = next(event for event in events if isinstance(event.body, ClockStop))
    assert isinstance(stop.body, ClockStop)
    windows = [event.body for event in events if isinstance(event.body, Window) and _late(event, stop, seconds)]
    took_s, wait_s = sum(window.seconds for window in windows), sum(window.data_wait_s for window in windows)
    rate = sum(window.images for window in windows) / took_s
    idle_s = sum(window.gpu_idle_s or 0.0 for window in windows)
    everything_s = sum(event.body.data_wait_s for event in events if isinstance(event.body, Window))
    files = (stop.body.file_wait_s or 0.0) / everything_s if everything_s else 0.0
    of_synthetic = rate * synthetic.seconds / synthetic.images
    return f"{rate:8.1f}  {of_synthetic:11.1%}  {idle_s / took_s:8.1%}  {wait_s / took_s:10.1%}  {files:16.1%}"


def _late(event: Event, stop: Event, seconds: float) -> bool:
    return event.t_mono_s > stop.t_mono_s - seconds


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A GPU's idle time in training that DALI feeds.")
    parser.add_argument("--workload", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--frames", type=int, default=256, help="to generate")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a trial that are looked at")
    parser.add_argument("--num-workers", type=int, default=16)
    parser.add_argument("--formats", nargs="+", choices=("PNG", "JPEG"), default=["PNG", "JPEG"])
    parser.add_argument("--flags", default="", help="for the training programs")
    return parser.parse_args()


if __name__ == "__main__":
    main()
