"""How much of DALI's bare decoding speed the whole segmentation input keeps, on the same cores, in one run.

    python benchmarks/segmentation_input.py [--data DIR] [--seconds 8] [--repeats 5] [--batch 4] [--threads 2] [--gpu]
                                            [--formats PNG JPEG]

DIR is in Cityscapes' layout; without it, street scenes of 2048x1024 px are generated in a temporary folder. Bare decoding
is image and mask, whole. Each repeat runs every kind once, one after the other; medians of rates and of ratios are printed.
With `--gpu` all work for a GPU, which decodes the JPEG itself.
"""

from __future__ import annotations

import argparse
import os
import statistics
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
from pictures import segmentation_as_jpeg, street_scenes
from turns import compare, rate

from training.common.dali_loader import DaliLoader
from training.common.gang import Gang
from training.common.loader import Batch
from training.common.sampler import Sampler
from training.segmentation.augment import Ranges
from training.segmentation.centroids import open_centroids
from training.segmentation.dataset import SegmentationSet
from training.segmentation.pipeline import graph
from training.segmentation.planner import Planner

RANGES = Ranges(crop=(800, 800), scale_min=0.5, scale_max=2.0, color_aug=0.25)
CLASS_UNIFORM_PCT = 0.5
TILE_PX = 1024


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-") as scratch:
        os.environ["SCALEOUT_CACHE_DIR"] = str(Path(scratch) / "cache")
        png = options.data or street_scenes(Path(scratch) / "png", options.frames)
        for name in options.formats:
            data = SegmentationSet.open(png, "train", 0, print)
            if name == "JPEG":
                data = SegmentationSet.open(segmentation_as_jpeg(data, Path(scratch) / "jpeg"), "train", 0, print)
            _compare(name, data, options)


def _compare(name: str, data: SegmentationSet, options: argparse.Namespace) -> None:
    sizes = [data.image(index).stat().st_size for index in range(len(data))]
    print(f"{name}: {len(data)} pairs, images of {statistics.mean(sizes) / 1e6:.2f} MB, {options.threads} threads")

    settle = torch.cuda.synchronize if options.gpu else lambda: None

    def measured(source: Callable[[], Callable[[], object]]) -> Callable[[], float]:
        return lambda: rate(source(), options.batch, options.seconds, settle)

    kinds = {
        "bare decode": measured(lambda: _bare(data, options)),
        "input, antialiased": measured(lambda: segmentation_batches(data, True, options)),
        "input, --no-antialias": measured(lambda: segmentation_batches(data, False, options)),
    }
    compare(kinds, options.repeats)


def _bare(data: SegmentationSet, options: argparse.Namespace) -> Callable[[], object]:
    device_id = 0 if options.gpu else None
    pipeline = Pipeline(options.batch, options.threads, device_id, prefetch_queue_depth=2)
    image_device = "mixed" if options.gpu and data.listing.has_jpeg else "cpu"
    with pipeline:
        shapes = []
        for path, kind, device in ((data.image, types.RGB, image_device), (data.mask, types.ANY_DATA, "cpu")):
            files = [str(path(index)) for index in range(len(data))]
            encoded, _ = fn.readers.file(files=files, random_shuffle=True, dont_use_mmap=True, seed=1)
            shapes.append(fn.decoders.image(encoded, device=device, output_type=kind).shape())
        pipeline.set_outputs(*shapes)
    batches = DALIGenericIterator([pipeline], ["images", "masks"], size=-1, last_batch_policy=LastBatchPolicy.FILL)
    return lambda: next(batches)


def segmentation_batches(data: SegmentationSet, antialias: bool, options: argparse.Namespace) -> Callable[[], Batch]:
    centroids = open_centroids(data, TILE_PX, print)
    device = torch.device("cuda", 0) if options.gpu else torch.device("cpu")
    loader = DaliLoader(
        Sampler(len(data), 0, 1, options.batch, seed=1, draw=centroids.draw(CLASS_UNIFORM_PCT)),
        Planner(data, centroids, RANGES),
        Gang(0, 0, 1, 0, device, None),
        graph(device, RANGES.crop, antialias, data.listing.has_jpeg),
        options.threads,
    )
    return loader.next_batch


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Segmentation input against bare decoding.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--frames", type=int, default=24, help="to generate")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--formats", nargs="+", choices=("PNG", "JPEG"), default=["PNG", "JPEG"])
    parser.add_argument("--gpu", action="store_true", help="work for the first GPU")
    return parser.parse_args()


if __name__ == "__main__":
    main()
