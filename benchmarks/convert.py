"""How fast Cityscapes becomes COCO: frames against a plain conversion of each instance, and ten times as many frames.

    python benchmarks/convert.py [--data DIR] [--frames 8] [--repeats 5] [--images 1000]

DIR is in Cityscapes' layout; without it, street scenes of 2048x1024 px are generated in a temporary folder. Each repeat runs
the kinds one after the other on all frames, in one process; medians of the CPU times and of their ratios are printed. Then
the program converts a thousand and ten thousand small frames: times, their ratio, and its peak memory.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from pictures import link_frame, small_frames, street_scenes
from PIL import Image
from programs import Ran, run
from pycocotools import mask

from training.data.conversion.annotations import NONE, POLYGONS, RLE, annotated
from training.data.conversion.categories import CATEGORIES
from training.data.conversion.cityscapes import Frame, read_splits
from training.data.conversion.truth import PER_LABEL, label_of, read_instance_ids
from training.data.memory import keep_freed_memory


def main() -> None:
    options = _options()
    keep_freed_memory()  # as the program does
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-") as scratch:
        data = options.data or street_scenes(Path(scratch) / "scenes", options.frames)
        frames = read_splits(data)["train"].frames[: options.frames]
        _compare(frames, options.repeats)
        _whole_program(frames, Path(scratch), options.images)
        _tenfold(Path(scratch), options.images, options.repeats)


def _compare(frames: list[Frame], repeats: int) -> None:
    kinds: dict[str, Callable[[Frame], list[dict[str, Any]]]] = {
        "plain, masks": _plain,
        "ours, masks as RLE": lambda frame: _ours(frame, RLE),
        "ours, masks as polygons": lambda frame: _ours(frame, POLYGONS),
        "ours, boxes only": lambda frame: _ours(frame, NONE),
    }
    objects = 0
    for frame in frames:
        plain, ours = _plain(frame), _ours(frame, RLE)
        assert [one | {"bbox": list(one["bbox"])} for one in ours] == plain, f"{frame.truth}: not the same result"
        objects += len(plain)
    print(f"{len(frames)} frames, {objects / len(frames):.1f} objects each, {repeats} repeats, one core")
    times_s: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _, (kind, convert), frame in itertools.product(range(repeats), kinds.items(), frames):
        started_s = time.process_time()
        convert(frame)
        times_s[kind].append(time.process_time() - started_s)
    first = next(iter(times_s.values()))
    for kind, taken_s in times_s.items():
        ratios = [plain_s / one_s for plain_s, one_s in zip(first, taken_s, strict=True)]
        print(
            f"  {kind:26} {1e3 * statistics.median(taken_s):7.1f} ms of CPU a frame   {statistics.median(ratios):5.1f} times "
            f"as fast (from {min(ratios):.1f} to {max(ratios):.1f})",
            flush=True,
        )


def _plain(frame: Frame) -> list[dict[str, Any]]:
    """A mask for each id, which pycocotools encodes."""
    ids = np.asarray(Image.open(frame.truth)).astype(np.int32)
    annotations = []
    for value in np.unique(ids).tolist():
        if label_of(value) in CATEGORIES:
            rle = mask.encode(np.asfortranarray((ids == value).astype(np.uint8)))
            annotation = {
                "category_id": label_of(value),
                "bbox": mask.toBbox(rle).astype(int).tolist(),
                "area": int(mask.area(rle)),
                "iscrowd": int(value < PER_LABEL),
                "segmentation": {"size": list(ids.shape), "counts": rle["counts"].decode("ascii")},
            }
            annotations.append(annotation)
    return annotations


def _ours(frame: Frame, segmentation: str) -> list[dict[str, Any]]:
    return annotated(read_instance_ids(frame.truth), segmentation, frame.truth)


def _whole_program(frames: list[Frame], scratch: Path, images: int) -> None:
    """With links, digests, annotations, index and manifest, on all cores."""
    tree = scratch / "many"
    for place, frame in zip(range(images), itertools.cycle(frames)):
        link_frame(tree, place, {"leftImg8bit": frame.image, "gtFine_instanceIds": frame.truth})
    ran = _convert(tree, scratch / "out", os.cpu_count() or 1)
    print(f"program, {images} frames of these, all cores: {images / ran.seconds:.1f} images/s")


def _tenfold(scratch: Path, images: int, repeats: int) -> None:
    trees = {count: small_frames(scratch / f"small-{count}", count) for count in (images, 10 * images)}
    times_s: dict[int, list[float]] = {count: [] for count in trees}
    peaks_mb: dict[int, list[float]] = {count: [] for count in trees}
    for _ in range(repeats):
        for count, tree in trees.items():
            ran = _convert(tree, scratch / "out", 1)
            times_s[count].append(ran.seconds)
            peaks_mb[count].append(ran.peak_bytes / 1e6)
    for count in trees:
        print(
            f"program, {count} small frames, one core: {statistics.median(times_s[count]):.2f} s, "
            f"{statistics.median(peaks_mb[count]):.0f} MB at most"
        )
    ratios = [ten_s / one_s for one_s, ten_s in zip(*times_s.values(), strict=True)]
    print(
        f"10 times the frames take {statistics.median(ratios):.1f} times the time (from {min(ratios):.1f} to {max(ratios):.1f})"
    )


def _convert(tree: Path, out: Path, workers: int) -> Ran:
    ran = run("data/convert.py", "--cityscapes", str(tree), "--out", str(out), "--workers", str(workers))
    shutil.rmtree(out)
    return ran


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures the conversion of Cityscapes to COCO.")
    parser.add_argument("--data", type=Path, help="a folder in Cityscapes' layout (default: generated street scenes)")
    parser.add_argument("--frames", type=int, default=8, help="frames to convert in turns (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each kind (default %(default)s)")
    parser.add_argument("--images", type=int, default=1000, help="frames for the program (default %(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
