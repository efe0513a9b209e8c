"""Whether a loader gives a GPU that is far behind its host the same batches as one that keeps up with it.

    python benchmarks/gpu_batches.py [--workload ssd segmentation] [--formats PNG JPEG] [--batches 60] [--delay-ms 40]

A GPU may come to read a batch when the host has long let go of it, and DALI makes others in the memory that it had. So each
batch is copied by the GPU after a delay that keeps it behind, and compared with a reading that waits for each. Exit status
1, and the batches that differ, where any does.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch
from pictures import data_set, street_scenes
from segmentation_input import segmentation_batches
from ssd_input import ssd_batches
from torch import Tensor

from training.common.gang import use_gpu
from training.common.loader import Batch
from training.segmentation.dataset import SegmentationSet
from training.ssd.annotations import open_annotations

BATCHES = {"ssd": 16, "segmentation": 4}
_TIMED_CYCLES = 100_000_000

Source = Callable[[], Batch]


def main() -> None:
    options = _options()
    if not torch.cuda.is_available():
        sys.exit("gpu_batches.py needs a GPU, and torch finds none here")
    use_gpu(torch.device("cuda", 0))
    cycles = int(_cycles_per_s() * options.delay_ms / 1e3)
    different = 0
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-") as scratch:
        os.environ["SCALEOUT_CACHE_DIR"] = str(Path(scratch) / "cache")
        scenes = street_scenes(Path(scratch) / "scenes", options.frames)
        for workload in options.workload:
            batch = BATCHES[workload]
            input_options = argparse.Namespace(gpu=True, batch=batch, threads=options.threads)
            for name in options.formats:
                source = _source(workload, name, data_set(workload, name, scenes, Path(scratch)), input_options)
                expected, waited_s = _read(source(), options.batches, 0)
                found, late_s = _read(source(), options.batches, cycles)
                wrong = [step for step, (a, b) in enumerate(zip(expected, found, strict=True)) if not _same(a, b)]
                different += len(wrong)
                told = f"batches {', '.join(map(str, wrong))} differ" if wrong else "the same"
                print(
                    f"{workload}, {name}: {options.batches} batches of {batch}: {told}; the host took them in "
                    f"{late_s:.1f} s while the GPU was late, in {waited_s:.1f} s waiting for each",
                    flush=True,
                )
    sys.exit(1 if different else 0)


def _read(source: Source, batches: int, delay_cycles: int) -> tuple[list[list[Tensor]], float]:
    """The batches as the GPU finds them, and the seconds that the host took."""
    copies = []
    began = time.perf_counter()
    for _ in range(batches):
        inputs = source().inputs
        if delay_cycles:
            torch.cuda._sleep(delay_cycles)
        copies.append([tensor.clone() for tensor in inputs])
        del inputs
        if not delay_cycles:
            torch.cuda.synchronize()
    took_s = time.perf_counter() - began
    torch.cuda.synchronize()
    return copies, took_s


def _same(expected: list[Tensor], found: list[Tensor]) -> bool:
    return all(map(torch.equal, expected, found))


def _cycles_per_s() -> float:
    torch.cuda._sleep(_TIMED_CYCLES // 100)
    torch.cuda.synchronize()
    began = time.perf_counter()
    torch.cuda._sleep(_TIMED_CYCLES)
    torch.cuda.synchronize()
    return _TIMED_CYCLES / (time.perf_counter() - began)


def _source(workload: str, name: str, folder: Path, options: argparse.Namespace) -> Callable[[], Source]:
    """What opens the input once more, from its start."""
    if workload == "segmentation":
        data = SegmentationSet.open(folder, "train", 0, print)
        return lambda: segmentation_batches(data, True, options)
    annotations = open_annotations(folder / "annotations" / "instances_train2017.json", print)
    return lambda: ssd_batches(folder, annotations, True, name == "JPEG", options)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A loader's batches on a GPU that is late.")
    parser.add_argument("--workload", nargs="+", choices=BATCHES, default=list(BATCHES))
    parser.add_argument("--formats", nargs="+", choices=("PNG", "JPEG"), default=["PNG", "JPEG"])
    parser.add_argument("--frames", type=int, default=24, help="to generate")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--delay-ms", type=float, default=40.0, help="before the GPU reads a batch")
    parser.add_argument("--threads", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    main()
