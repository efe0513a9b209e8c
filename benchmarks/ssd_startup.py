"""How long a rank of the SSD program takes to open the annotations of a full-size set, and how much memory.

    python benchmarks/ssd_startup.py [--images 972825] [--boxes-per-image 17.5] [--ranks 8]

A COCO file of that size is generated in a temporary folder (TMPDIR) and removed at the end. Each measurement is a
process of its own. Peak memory is VmHWM (ru_maxrss would begin with the parent's): it counts pages of mapped files,
which the ranks of a node share; the proportional share (Pss) counts each shared page once over all processes. Files are
in the page cache.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

from training.common.errors import UserError
from training.ssd.annotations import open_annotations

FETCHED = 1000
PLAIN_PART = 20  # the plain reading is of this part of the file
BYTES_PER_BOX, BYTES_PER_IMAGE = 145, 120  # of generated JSON, at most
AT_ONCE = 1000
CATEGORIES = ["person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"]
WIDTH, HEIGHT = 2048, 1024


def main() -> None:
    options = _options()
    if options.child:
        times = _CHILDREN[options.child](options.path)
        print("opened", flush=True)
        sys.stdin.readline()  # all of a measurement hold what they opened while each looks at its memory
        print(json.dumps({key: value for key, value in (times | _memory()).items() if key != "held"}), flush=True)
        sys.stdin.readline()
        return
    boxes = round(options.images * options.boxes_per_image)
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-") as scratch:
        # Beside the annotations and their twentieth lies the index, of a quarter of their size.
        need_bytes = round(1.3 * (boxes * BYTES_PER_BOX + options.images * BYTES_PER_IMAGE))
        free_bytes = shutil.disk_usage(scratch).free
        if need_bytes > free_bytes:
            sys.exit(f"{scratch}: {free_bytes / 1e9:.1f} GB free, {need_bytes / 1e9:.1f} GB needed; set TMPDIR")
        _measure(Path(scratch), options.images, boxes, options.ranks)


def _measure(scratch: Path, images: int, boxes: int, ranks: int) -> None:
    path, part = scratch / "instances.json", scratch / "part.json"
    os.environ["SCALEOUT_CACHE_DIR"] = str(scratch / "cache")
    start_s = time.monotonic()
    _generate(path, images, boxes)
    json_bytes = path.stat().st_size
    cores = len(os.sched_getaffinity(0))
    print(
        f"{images} images, {boxes} boxes: {json_bytes / 1e9:.2f} GB of JSON, made in {_since(start_s)}; "
        f"{cores} cores, load {os.getloadavg()[0]:.1f}"
    )

    (built,) = _run("open", path, 1)
    files = [file for file in (scratch / "cache").rglob("*.npy") if file.is_file()]
    index_bytes = sum(file.stat().st_size for file in files)
    print(
        f"build the index ({index_bytes / 1e6:.0f} MB): {built['open_s']:.1f} s, "
        f"{json_bytes / 1e6 / built['open_s']:.0f} MB/s, CPU {built['cpu_s']:.0f} s and "
        f"{built['children_cpu_s']:.0f} s in parsing processes; peak {built['peak_mb']:.0f} MB, "
        f"each parsing process {built['children_peak_mb']:.0f} MB at most"
    )
    (alone,) = _run("open", path, 1)
    _say_ranks("a rank that opens it", [alone])
    _say_ranks(f"{ranks} ranks at once", _run("open", path, ranks))
    os.utime(path)
    (compared,) = _run("open", path, 1)
    print(f"a rank that finds a new date first compares the SHA-256: {compared['open_s']:.1f} s")

    _generate(part, images // PLAIN_PART, boxes // PLAIN_PART)
    (plain,) = _run("plain", part, 1)
    scale = json_bytes / part.stat().st_size
    plain_s, plain_mb = plain["open_s"] * scale, (plain["peak_mb"] - plain["base_mb"]) * scale
    print(
        f"json.load of {part.stat().st_size / 1e6:.0f} MB: {plain['open_s']:.1f} s, CPU {plain['cpu_s']:.1f} s, "
        f"peak {plain['peak_mb']:.0f} MB; scaled by size to the whole file (not measured): {plain_s:.0f} s, "
        f"{plain_mb / 1e3:.1f} GB per rank"
    )
    print(
        f"a start with the index takes 1/{plain_s / alone['open_s']:.0f} of the time and "
        f"1/{plain_mb / alone['peak_mb']:.0f} of the memory of the scaled json.load; "
        f"building it takes {built['open_s'] / plain_s:.2f} of that time, "
        f"and {(built['cpu_s'] + built['children_cpu_s']) / (plain['cpu_s'] * scale):.2f} of its CPU time"
    )


def _say_ranks(what: str, ranks: list[dict[str, float]]) -> None:
    print(
        f"{what}: open {max(rank['open_s'] for rank in ranks):.2f} s, boxes of {FETCHED} random images "
        f"{1e3 * max(rank['fetch_s'] for rank in ranks):.0f} ms; peak {max(rank['peak_mb'] for rank in ranks):.0f} MB, "
        f"proportional share {sum(rank['share_mb'] for rank in ranks):.0f} MB together"
    )


def _run(child: str, path: Path, count: int) -> list[dict[str, float]]:
    command = [sys.executable, __file__, "--child", child, "--path", str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(command, **pipes) for _ in range(count)]
    answers = []
    for _ in ("opened", "measured"):
        answers = [process.stdout.readline() for process in running]
        if not all(answers):
            sys.exit(f"{child} of {path} failed")
        for process in running:
            process.stdin.write("\n")
            process.stdin.flush()
    for process in running:
        process.communicate()
    return [json.loads(answer) for answer in answers]


def _open(path: Path) -> dict[str, Any]:
    start_s = time.monotonic()
    try:
        annotations = open_annotations(path, lambda _: None)
    except UserError as error:
        sys.exit(f"error: {error}")
    opened_s = time.monotonic()
    for index in np.random.default_rng(0).integers(0, len(annotations), FETCHED):
        annotations.boxes(index)
        annotations.labels(index)
        annotations.name(index)
    return {"open_s": opened_s - start_s, "fetch_s": time.monotonic() - opened_s, "held": annotations}


def _plain(path: Path) -> dict[str, Any]:
    base_mb = _memory()["peak_mb"]
    start_s = time.monotonic()
    with path.open(encoding="utf-8") as file:
        document = json.load(file)
    return {"open_s": time.monotonic() - start_s, "held": document, "base_mb": base_mb}


_CHILDREN = {"open": _open, "plain": _plain}


def _memory() -> dict[str, float]:
    """And the CPU time of this process and its children until now."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cpu_s": own.ru_utime + own.ru_stime,
        "children_cpu_s": children.ru_utime + children.ru_stime,
        "peak_mb": _kib("status", "VmHWM:") * 1024 / 1e6,
        "children_peak_mb": children.ru_maxrss * 1024 / 1e6,
        "share_mb": _kib("smaps_rollup", "Pss:") * 1024 / 1e6,
    }


def _kib(file: str, key: str) -> int:
    lines = (Path("/proc/self") / file).read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(key)))


def _generate(path: Path, images: int, boxes: int) -> None:
    """Images of 2048x1024 px; boxes in the order of their images, at least one for each."""
    random = np.random.default_rng(0)
    extra = np.sort(random.integers(0, images, boxes - images))
    image_ids = np.sort(np.concatenate([np.arange(images), extra])) + 1
    categories = [{"id": 24 + k, "name": name} for k, name in enumerate(CATEGORIES)]
    with path.open("w", encoding="ascii") as file:
        file.write(f'{{"categories": {json.dumps(categories)}, "images": [')
        image = (
            f'{{"id": %d, "file_name": "ulm/ulm_%06d_000019_leftImg8bit.png", "width": {WIDTH}, "height": {HEIGHT}}}'
        )
        _write_rows(file, image, np.repeat(np.arange(1, images + 1), 2).reshape(-1, 2))
        file.write('], "annotations": [')
        box = (
            '{"id": %d, "image_id": %d, "category_id": %d, "bbox": [%.2f, %.2f, %.2f, %.2f], '
            '"area": %.4f, "iscrowd": %d}'
        )
        for start in range(0, boxes, 100 * AT_ONCE):
            ids = image_ids[start : start + 100 * AT_ONCE]
            corner, end = np.sort(random.random((2, len(ids), 2)), axis=0) * (WIDTH, HEIGHT)
            sides = end - corner + 1
            numbers = np.arange(start + 1, start + 1 + len(ids))
            kinds, crowd = random.integers(24, 24 + len(CATEGORIES), len(ids)), random.random(len(ids)) < 0.01
            rows = np.column_stack([numbers, ids, kinds, corner, sides, sides.prod(axis=1), crowd])
            file.write(", " if start else "")
            _write_rows(file, box, rows)
        file.write("]}\n")


def _write_rows(file: Any, pattern: str, rows: np.ndarray) -> None:
    for start in range(0, len(rows), AT_ONCE):
        some = rows[start : start + AT_ONCE]
        file.write(", " if start else "")
        file.write(", ".join([pattern] * len(some)) % tuple(some.ravel().tolist()))


def _since(start_s: float) -> str:
    return f"{time.monotonic() - start_s:.0f} s"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Seconds and memory to open the annotations of a full-size set.")
    parser.add_argument("--images", type=int, default=972_825, help="(default: the paper's %(default)s)")
    parser.add_argument("--boxes-per-image", type=float, default=17.5, help="at least 1 (default: %(default)s)")
    parser.add_argument("--ranks", type=int, default=8, help="that open it at once (default: %(default)s)")
    parser.add_argument("--child", choices=["open", "plain"], help=argparse.SUPPRESS)
    parser.add_argument("--path", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.images < PLAIN_PART or options.boxes_per_image < 1 or options.ranks < 1:
        parser.error(f"at least {PLAIN_PART} images, 1 box per image and 1 rank")
    return options


if __name__ == "__main__":
    main()
