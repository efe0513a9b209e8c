"""How much of DALI's bare decoding speed the whole segmentation input keeps, on the same cores, in one run.

    python benchmarks/segmentation_input.py [--data DIR] [--seconds 8] [--repeats 5] [--batch 4] [--threads 2]

DIR is in Cityscapes' layout; without it, street scenes of 2048x1024 px are generated in a temporary folder. Bare decoding
is image and mask, whole. Each repeat runs every kind once, one after the other; medians of rates and of ratios are printed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from PIL import Image
from turns import compare, rate

from training.common.dali_loader import DaliLoader
from training.common.gang import Gang
from training.common.sampler import Sampler
from training.segmentation.augment import Ranges
from training.segmentation.centroids import open_centroids
from training.segmentation.dataset import SegmentationSet
from training.segmentation.pipeline import graph
from training.segmentation.planner import Planner

CPU = Gang(0, 0, 1, 0, torch.device("cpu"), None)
RANGES = Ranges(crop=(800, 800), scale_min=0.5, scale_max=2.0, color_aug=0.25)
CLASS_UNIFORM_PCT = 0.5
TILE_PX = 1024
JPEG_QUALITY = 92


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-") as scratch:
        os.environ["SCALEOUT_CACHE_DIR"] = str(Path(scratch) / "cache")
        png = options.data or _generated(Path(scratch) / "png")
        _compare("PNG", SegmentationSet.open(png, "train", 0, print), options)
        if options.jpeg:
            jpeg = _as_jpeg(SegmentationSet.open(png, "train", 0, print), Path(scratch) / "jpeg")
            _compare("JPEG", SegmentationSet.open(jpeg, "train", 0, print), options)


def _compare(name: str, data: SegmentationSet, options: argparse.Namespace) -> None:
    sizes = [data.image(index).stat().st_size for index in range(len(data))]
    print(f"{name}: {len(data)} pairs, images of {statistics.mean(sizes) / 1e6:.2f} MB, {options.threads} threads")

    def measured(source: Callable[[], Callable[[], object]]) -> Callable[[], float]:
        return lambda: rate(source(), options.batch, options.seconds)

    kinds = {
        "bare decode": measured(lambda: _bare(data, options)),
        "input, antialiased": measured(lambda: _input(data, True, options)),
        "input, --no-antialias": measured(lambda: _input(data, False, options)),
    }
    compare(kinds, options.repeats)


def _bare(data: SegmentationSet, options: argparse.Namespace) -> Callable[[], object]:
    pipeline = Pipeline(batch_size=options.batch, num_threads=options.threads, device_id=None, prefetch_queue_depth=2)
    with pipeline:
        shapes = []
        for path, kind in ((data.image, types.RGB), (data.mask, types.ANY_DATA)):
            files = [str(path(index)) for index in range(len(data))]
            encoded, _ = fn.readers.file(files=files, random_shuffle=True, dont_use_mmap=True, seed=1)
            shapes.append(fn.decoders.image(encoded, device="cpu", output_type=kind).shape())
        pipeline.set_outputs(*shapes)
    batches = DALIGenericIterator([pipeline], ["images", "masks"], size=-1, last_batch_policy=LastBatchPolicy.FILL)
    return lambda: next(batches)


def _input(data: SegmentationSet, antialias: bool, options: argparse.Namespace) -> Callable[[], object]:
    centroids = open_centroids(data, TILE_PX, print)
    loader = DaliLoader(
        Sampler(len(data), 0, 1, options.batch, seed=1, draw=centroids.draw(CLASS_UNIFORM_PCT)),
        Planner(data, centroids, RANGES),
        CPU,
        graph(CPU.device, RANGES.crop, antialias, data.listing.has_jpeg),
        options.threads,
    )
    return loader.next_batch


def _generated(out: Path) -> Path:
    program = str(ROOT / "training" / "data" / "generate.py")
    subprocess.run(
        [sys.executable, program, "--out", str(out), "--train", "24", "--val", "0"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return out


def _as_jpeg(source: SegmentationSet, out: Path) -> Path:
    for index in range(len(source)):
        for path, part in ((source.image(index), source.images), (source.mask(index), source.masks)):
            target = out / part.name / path.relative_to(part)
            target.parent.mkdir(parents=True, exist_ok=True)
            if part == source.masks:
                target.symlink_to(path.resolve())
            else:
                Image.open(path).convert("RGB").save(target.with_suffix(".jpg"), quality=JPEG_QUALITY)
    return out


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Segmentation input against bare decoding, on the CPU.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--jpeg", action=argparse.BooleanOptionalAction, default=True, help="the same as JPEG, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
