"""Plays training/ssd/inflate.py on a node: its command line, its phases, what it says; an image is a file of a few bytes.

What `make` does on a node stands in `$HOME/inflate.json`: {"says": text, "exit": n} to end so after the first shard,
{"waits": true} to make nothing more after it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

MANIFEST, PLAN = "manifest.json", "plan.json"
IMAGE = b"an image"


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for flag in ("--source", "--out"):
        parser.add_argument(flag, type=Path, required=True)
    for flag in ("--factor", "--seed"):
        parser.add_argument(flag, type=int, required=True)
    parser.add_argument("--method", choices=["augment", "copy"], required=True)
    parser.add_argument("--format", choices=["png", "jpeg"], required=True)
    parser.add_argument("--mean-mb", type=float)
    parser.add_argument("--phase", choices=["plan", "make", "finish"], required=True)
    parser.add_argument("--node", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=1)
    return parser.parse_args()


def say(**summary: Any) -> None:
    print(json.dumps(summary))


def whole(options: argparse.Namespace, skipped: bool) -> None:
    manifest = options.out / MANIFEST
    images = len(json.loads(manifest.read_text()))
    say(
        manifest_sha256=hashlib.sha256(manifest.read_bytes()).hexdigest(), images=images, image_bytes=images * len(IMAGE),
        mean_image_bytes=len(IMAGE), skipped=skipped, seconds=0.1, warnings=[],
    )  # fmt: skip


def plan(options: argparse.Namespace) -> None:
    if (options.out / MANIFEST).exists():
        whole(options, skipped=True)
        return
    frames = json.loads((options.source / MANIFEST).read_text())
    options.out.mkdir(parents=True, exist_ok=True)
    left = [frame for frame in frames if not (options.out / f"{frame}.json").exists()]
    (options.out / PLAN).write_text(json.dumps(left))
    images = len(left) * options.factor
    print(f"{len(frames) - len(left)} shards are there")
    say(
        images=len(frames) * options.factor, left_images=images, left_shards=len(left), left_bytes=images * len(IMAGE),
        skipped=False,
    )  # fmt: skip


def make(options: argparse.Namespace) -> None:
    behaviour_file = Path(os.environ["HOME"]) / "inflate.json"
    behaviour = json.loads(behaviour_file.read_text()) if behaviour_file.exists() else {}
    mine = json.loads((options.out / PLAN).read_text())[options.node :: options.nodes]
    done, of = 0, len(mine) * options.factor
    print(f"makes {len(mine)} shards")
    for frame in mine:
        folder = options.out / "train2017" / frame
        folder.mkdir(parents=True, exist_ok=True)
        for variant in range(options.factor):
            (folder / f"{frame}_v{variant:04}_leftImg8bit.png").write_bytes(IMAGE)
            done += 1
        print(f"{done} of {of} images, 10.0 images/s, 2.5 MB/s, {(of - done) / 10:.0f} s left", flush=True)
        (options.out / f"{frame}.json").write_text("{}")
        if "exit" in behaviour:
            while len(list(options.out.glob("aachen_*.json"))) < options.nodes:  # so that each node has told of a shard
                time.sleep(0.05)
            print(behaviour["says"], file=sys.stderr, flush=True)
            sys.exit(behaviour["exit"])
        if behaviour.get("waits"):
            print("waits with the next shard", flush=True)
        while behaviour.get("waits"):
            time.sleep(1)
    say(images=done, bytes=done * len(IMAGE), seconds=0.2)


def finish(options: argparse.Namespace) -> None:
    images = sorted(path.name for path in options.out.glob("train2017/*/*.png"))
    (options.out / MANIFEST).write_text(json.dumps(images))
    whole(options, skipped=False)


if __name__ == "__main__":
    options = parsed()
    {"plan": plan, "make": make, "finish": finish}[options.phase](options)
