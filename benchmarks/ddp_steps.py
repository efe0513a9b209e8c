"""What exchanging gradients adds to a training step, and what DDP's settings change, as ratios within one run.

    python benchmarks/ddp_steps.py [--processes 8] [--device cpu] [--workload ssd segmentation] [--batch 16]
                                   [--setting NAME=FLAGS ...] [--flags FLAGS] [--repeats 5] [--at-once]
                                   [--traces DIR]

Every setting has a group of its own, one process for each GPU (NCCL) or on the CPU (gloo, one thread each); they take turns,
on synthetic batches. `bare` makes the same steps in as many processes that exchange nothing: what a setting takes beyond it is
communication that compute did not hide. One process is a group too: there the ratio is the price of DDP itself.
`--setting` names settings by flags of the training programs, `--flags` go to all. A trace of rank 0 then splits its steps
by what ran when; `--traces` keeps it, for Perfetto or chrome://tracing.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch
from split import split
from steppers import WORKLOADS, Ask, Variant, prepare, ratio_text, ready, started

BATCHES = {"ssd": 16, "segmentation": 8}
BARE = "bare"
SETTINGS = {
    "default": "",
    "buckets of 10 MiB": "--ddp-bucket-mb 10",
    "buckets of 100 MiB": "--ddp-bucket-mb 100",
    "copied gradients": "--no-ddp-bucket-view",
    "static graph": "--ddp-static-graph",
    "bf16": "--ddp-compress bf16",
}
TRACED_STEPS = 2


def main() -> None:
    options = _options()
    what = "CPU" if options.device == "cpu" else torch.cuda.get_device_name()
    print(f"{options.processes} x {what}, torch {torch.__version__}, {options.repeats} turns, medians", flush=True)
    for workload in options.workload:
        batch = options.batch or BATCHES[workload]
        common = shlex.split(options.flags)
        here = {"processes": options.processes, "device": options.device}
        variants = [Variant.named(BARE, workload, batch, *common, **here)]
        variants += [
            Variant.named(text, workload, batch, "--ddp", "torch", *common, **here) for text in options.setting
        ]
        with started(variants) as asks, tempfile.TemporaryDirectory() as scratch:
            if options.at_once:
                prepare(asks)
            _compare(variants, asks, options)
            _traces(variants, asks, Path(options.traces or scratch))
            for ask in asks:
                ask("leave")


def _compare(variants: list[Variant], asks: list[Ask], options: argparse.Namespace) -> None:
    first = variants[0]
    told = ready(variants, asks)
    print(f"\n== {first.workload}, batch {first.batch} per process, {asks[0]('gradient_mb')[0]:.1f} MB of gradients")
    rates: dict[str, list[float]] = {variant.name: [] for variant in variants}
    for _ in range(options.repeats):
        for variant, own, ask in zip(variants, told, asks, strict=True):
            step_s = max(ask("time", max(1, round(options.seconds / own["step_s"])), False))
            rates[variant.name].append(first.batch * first.processes / step_s)
    print(f"{'':22}   images/s    ms a step   of bare               of {variants[1].name}")
    for variant in variants:
        found = rates[variant.name]
        rate = statistics.median(found)
        ratios = "   ".join(ratio_text(found, rates[base.name], 3) for base in variants[: 1 + (variant is not first)])
        print(
            f"{variant.name:22} {rate:10.1f} {1e3 * first.batch * first.processes / rate:12.2f}   {ratios}", flush=True
        )


def _traces(variants: list[Variant], asks: list[Ask], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{'rank 0, ms a step':22}   compute   + hidden, exposed communication   + neither")
    for variant, ask in zip(variants, asks, strict=True):
        file = folder / f"{variant.workload}-{variant.name.replace(' ', '-')}.json"
        ask("trace", str(file), TRACED_STEPS)
        parts = split(file, TRACED_STEPS)
        columns = [f"{1e3 * part:9.2f}" for part in (parts.compute, parts.hidden, parts.exposed, parts.neither)]
        print(f"{variant.name:22} {' '.join(columns)}", flush=True)


def _options() -> argparse.Namespace:
    gpus = torch.cuda.device_count()
    parser = argparse.ArgumentParser(description="Cost of exchanging gradients.")
    parser.add_argument("--processes", type=int, help="default: the GPUs of this host; 2 on the CPU")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--batch", type=int, help="per process (default: ssd 16, segmentation 8)")
    parser.add_argument("--setting", action="append", metavar="NAME=FLAGS", help=f"default: {', '.join(SETTINGS)}")
    parser.add_argument("--flags", default="", help="for every setting")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn, about")
    parser.add_argument("--at-once", action="store_true", help="compile all settings beside each other")
    parser.add_argument("--traces", metavar="DIR", help="keep the traces there")
    options = parser.parse_args()
    options.processes = options.processes or (2 if options.device == "cpu" else gpus)
    options.setting = options.setting or [f"{name}={flags}" for name, flags in SETTINGS.items()]
    if options.device == "cuda" and not 1 <= options.processes <= gpus:
        sys.exit(
            f"ddp_steps.py gives each process a GPU, and torch finds {gpus} here: ask for fewer, or give --device cpu"
        )
    return options


if __name__ == "__main__":
    main()
