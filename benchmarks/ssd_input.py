"""How much of DALI's bare decoding speed the whole SSD input keeps, on the same cores, in one run.

    python benchmarks/ssd_input.py [--data DIR] [--seconds 3] [--repeats 9] [--batch 4] [--threads 2] [--gpu]
                                   [--formats PNG JPEG]

DIR is a prepared set (annotations/, train2017/); without it, generated street scenes of 2048x1024 px are prepared in a
temporary folder. The kinds take turns; medians of rates and of the turns' ratios are printed. With `--gpu` both work for a
GPU, which decodes the JPEG itself.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from pictures import detection_as_jpeg, for_detection, street_scenes
from turns import compare, rate

from training.common.dali_loader import DaliLoader
from training.common.gang import Gang
from training.common.loader import Batch
from training.common.sampler import Sampler
from training.ssd.annotations import Annotations, open_annotations
from training.ssd.pipeline import graph
from training.ssd.planner import Planner


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-") as scratch:
        made = Path(scratch)
        png = options.data or for_detection(street_scenes(made / "cityscapes", options.frames), made / "png")
        for name in options.formats:
            _compare(name, png if name == "PNG" else detection_as_jpeg(png, made / "jpeg"), options)


def _compare(name: str, data: Path, options: argparse.Namespace) -> None:
    annotations = open_annotations(data / "annotations" / "instances_train2017.json", print)
    files = [data / "train2017" / annotations.name(index) for index in range(len(annotations))]
    sizes = [path.stat().st_size for path in files]
    print(f"{name}: {len(files)} images, mean {statistics.mean(sizes) / 1e6:.2f} MB, {options.threads} threads")
    jpeg = name == "JPEG"
    sources: dict[str, Callable[[], object]] = {
        "bare decode": _bare(files, jpeg, options),
        "SSD, antialiased": ssd_batches(data, annotations, True, jpeg, options),
        "SSD, --no-antialias": ssd_batches(data, annotations, False, jpeg, options),
    }
    settle = torch.cuda.synchronize if options.gpu else lambda: None
    kinds = {kind: partial(rate, source, options.batch, options.seconds, settle) for kind, source in sources.items()}
    compare(kinds, options.repeats)


def _bare(files: list[Path], jpeg: bool, options: argparse.Namespace) -> Callable[[], object]:
    device_id = 0 if options.gpu else None
    pipeline = Pipeline(options.batch, options.threads, device_id, prefetch_queue_depth=2)
    device = "mixed" if options.gpu and jpeg else "cpu"
    with pipeline:
        encoded, _ = fn.readers.file(files=[str(path) for path in files], random_shuffle=True, dont_use_mmap=True)
        pipeline.set_outputs(fn.decoders.image(encoded, device=device, output_type=types.RGB).shape())
    batches = DALIGenericIterator([pipeline], ["shapes"], size=-1, last_batch_policy=LastBatchPolicy.FILL)
    return lambda: next(batches)


def ssd_batches(
    data: Path, annotations: Annotations, antialias: bool, jpeg: bool, options: argparse.Namespace
) -> Callable[[], Batch]:
    device = torch.device("cuda", 0) if options.gpu else torch.device("cpu")
    loader = DaliLoader(
        Sampler(len(annotations), 0, 1, options.batch, seed=1),
        Planner(data / "train2017", annotations),
        Gang(0, 0, 1, 0, device, None),
        graph(device, antialias, jpeg),
        options.threads,
    )
    return loader.next_batch


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="SSD input against bare decoding.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--frames", type=int, default=24, help="to generate")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--formats", nargs="+", choices=("PNG", "JPEG"), default=["PNG", "JPEG"])
    parser.add_argument("--gpu", action="store_true", help="work for the first GPU")
    return parser.parse_args()


if __name__ == "__main__":
    main()
