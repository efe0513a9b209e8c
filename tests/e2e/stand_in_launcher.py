"""Plays `python -m torch.distributed.run … main.py …` on a node: one rank per node that leaves a plausible event log.

What it does stands in `$HOME/behaviour.json`, a home per node: {"exit": n} to fail at once, {"hang": true} to start a
rank in a session of its own and wait for it for ever, {"talk": true} to say numbered lines until it is no longer told to.
`$HOME/launches` has a line for each time that it was started.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path.cwd().parents[1]))

from training.wire import events
from training.wire.job import EVENTS_FILE, NODE_VARIABLE, RUN_ID_VARIABLE, rank_folder

STEP_S = 0.01
TALK_PAUSE_S = 0.05


def parsed(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for flag in ("--nnodes", "--node_rank", "--batch-size", "--steps"):
        parser.add_argument(flag, type=int, required=True)
    for flag in ("--data", "--events"):
        parser.add_argument(flag, type=Path, required=True)
    return parser.parse_known_args(argv)[0]


def train(options: argparse.Namespace) -> None:
    rank, batch, steps = options.node_rank, options.batch_size, options.steps
    manifest = json.loads((options.data / "manifest.json").read_text())["splits"]["train"]
    images = sorted((options.data / "train2017").rglob("*.png"))[rank :: options.nnodes]
    dataset = events.Dataset(
        root=str(options.data), images=manifest["images"], image_bytes=manifest["image_bytes"], label_bytes=0,
        mean_image_bytes=manifest["image_bytes"] / manifest["images"], manifest_sha256=None, shard_images=len(images),
        sharding="every n-th",
    )  # fmt: skip
    with events.EventLog(options.events / rank_folder(rank) / EVENTS_FILE, rank) as log:
        log.write(
            events.RunStart(
                program="stand-in", argv=sys.argv, run_id=os.environ[RUN_ID_VARIABLE], node=os.environ[NODE_VARIABLE],
                hostname=os.uname().nodename, boot_id=None, pid=os.getpid(), node_rank=rank, local_rank=0,
                world_size=options.nnodes, device="cpu", device_name="stand-in", backend=None, ddp="none", precision="fp32",
                loader="stand-in", seed=1, model="stand-in", classes=[], parameters=0, batch_per_gpu=batch,
                global_batch=batch * options.nnodes, num_workers=1, learning_rate=0.1, length={"steps": steps},
                dataset=dataset, affinity=[0], network_interface="lo", versions={},
            )
        )  # fmt: skip
        log.write(events.Synthetic(warmup_steps=1, warmup_s=STEP_S, steps=1, images=batch, seconds=STEP_S))
        log.write(events.ClockStart(read_bytes=read_bytes()))
        started, consumed = time.monotonic(), 0
        for step in range(steps):
            mine = images[step * batch : (step + 1) * batch]
            consumed += sum(len(path.read_bytes()) for path in mine)
            if step == 0:
                log.write(events.FirstBatch(seconds=time.monotonic() - started))
            log.write(
                events.Window(
                    pass_index=0, epoch=0, step_first=step, steps=1, images=batch, seconds=STEP_S, data_wait_s=0.0,
                    gpu_idle_s=None, loss=1.0, learning_rate=0.1, host_memory_bytes=0, gpu_memory_bytes=None,
                )
            )  # fmt: skip
        log.write(
            events.EpochEnd(
                epoch=0,
                pass_index=0,
                complete=False,
                images=steps * batch,
                padded_images=0,
                seconds=steps * STEP_S,
                read_bytes=read_bytes(),
            )
        )
        log.write(
            events.ClockStop(
                steps=steps, images=steps * batch, seconds=steps * STEP_S, distinct_files=len(images),
                distinct_bytes=consumed, first_pass_distinct_bytes=consumed, prefetched_images=0, read_bytes=read_bytes(),
            )
        )  # fmt: skip
        log.write(events.RunEnd(status="succeeded", error=None))


def read_bytes() -> int:
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["read_bytes"])


def behaves() -> dict:
    path = Path(os.environ["HOME"]) / "behaviour.json"
    return json.loads(path.read_text()) if path.exists() else {}


def talk() -> None:
    said = 0
    while behaves().get("talk"):
        said += 1
        print(f"line {said} of the stand-in", flush=True)
        time.sleep(TALK_PAUSE_S)
    print(f"the stand-in has said {said} lines", flush=True)


def main() -> int:
    behaviour = behaves()
    options = parsed(sys.argv[1:])
    with (Path(os.environ["HOME"]) / "launches").open("a") as launches:
        launches.write(f"{options.events}\n")
    print("the stand-in launcher starts", flush=True)
    if "exit" in behaviour:
        print("a rank of the stand-in fails on purpose", flush=True)
        return behaviour["exit"]
    if behaviour.get("hang"):
        rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        print("a rank of the stand-in hangs", flush=True)
        return rank.wait()
    if behaviour.get("talk"):
        talk()
    train(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
