"""What a training step costs on one GPU, beside the reference programs' own steps, as ratios within one run.

    python benchmarks/gpu_steps.py [--workload ssd segmentation] [--batch 16 128] [--reference DIR] [--repeats 5]
                                   [--ours NAME=FLAGS ...] [--at-once] [--profile] [--loss-curves STEPS]

Every variant is a process of its own; they take turns on the GPU, on one synthetic batch. `--ours` names variants by
flags of the training program, which assembles and steps them itself; `--ddp torch` among them makes a group of one
process. `--reference` adds NVIDIA's programs (see gpu_reference.py for DIR). Rates are told with the loss read back
after each step, as the reference does, and once per turn, as our windows do. `ready` is the time from an assembled model
to steady steps: compilation, cuDNN's choice of algorithms, capture. No rate has it in it. `peak` is torch's allocation.

`--loss-curves` trains the default, the same without one CUDA graph and plain single precision from one seed instead, on
batches of noise; `--profile` tells where the GPU's time goes.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch
from steppers import Ask, Variant, prepare, ratio_text, ready, started

BATCHES = {"ssd": [16, 128], "segmentation": [8]}
OURS = ["ours=", "ours in DDP=--ddp torch", "no one graph=--no-cuda-graph", "plain=--no-compile"]
CURVES = ["ours=", "no one graph=--no-cuda-graph", "fp32=--precision fp32 --no-allow-tf32 --no-compile"]
REFERENCE = "reference"
SHOWN_OPERATORS = 15
PROFILED_STEPS = 3
GIB = 1 << 30
FAMILIES = {
    "memory layout changes": r"nchwToNhwc|nhwcToNchw",
    "resizing": r"upsample",
    "fused by the compiler": r"^triton",
    "convolutions, matrix products": r"fprop|dgrad|wgrad|conv|gemm|nvjet|cutlass|xmma",
    "batch norm": r"bn_|batch_?norm",
    "sorting": r"[sS]ort",
    "optimiser, loss scale": r"multi_tensor|[fF]used.?[sS][gG][dD]|amp_",
    "the rest": r"",
}


def main() -> None:
    options = _options()
    if not torch.cuda.is_available():
        sys.exit("gpu_steps.py measures a GPU, and torch finds none here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.repeats} turns, medians", flush=True)
    with ExitStack() as running:
        rounds: list[tuple[list[Variant], list[Ask]]] = []
        for workload in options.workload:
            for batch in options.batch or BATCHES[workload]:
                cropped = ["--crop_size", options.crop] if options.crop and workload == "segmentation" else []
                variants = [Variant.named(text, workload, batch, *cropped) for text in options.ours]
                if options.reference and not options.loss_curves:
                    variants.insert(0, Variant(REFERENCE, workload, batch, reference=options.reference.resolve()))
                rounds.append((variants, running.enter_context(started(variants))))
        if options.at_once:
            prepare([ask for _, asks in rounds for ask in asks])
        for variants, asks in rounds:
            size = f"batch {variants[0].batch}" + (f", crop {options.crop}" if options.crop else "")
            print(f"\n== {variants[0].workload}, {size}", flush=True)
            (_curves if options.loss_curves else _compare)(variants, asks, options)
            for ask in asks:
                ask("leave")


def _compare(variants: list[Variant], asks: list[Ask], options: argparse.Namespace) -> None:
    told = ready(variants, asks)
    rates: dict[tuple[str, bool], list[float]] = {}
    for _ in range(options.repeats):
        for variant, own, ask in zip(variants, told, asks, strict=True):
            for read in (True, False):
                (step_s,) = ask("time", max(3, round(options.seconds / own["step_s"])), read)
                rates.setdefault((variant.name, read), []).append(variant.batch / step_s)
    first = variants[0].name
    print(f"{'':26} read each step             read once a turn           peak GiB   ready s")
    for variant, own in zip(variants, told, strict=True):
        cells = []
        for read in (True, False):
            found, base = rates[variant.name, read], rates[first, read]
            cells.append(f"{statistics.median(found):7.1f}/s {ratio_text(found, base, 2)}")
        print(f"{variant.name:26} {'   '.join(cells)}   {own['peak'] / GIB:7.2f}   {own['ready_s']:7.1f}")
    sys.stdout.flush()
    if options.profile:
        for variant, ask in zip(variants, asks, strict=True):
            (found,) = ask("kernels", PROFILED_STEPS)
            print(f"-- {variant.name}, ms of GPU time a step\n{_profile(found)}", flush=True)


def _curves(variants: list[Variant], asks: list[Ask], options: argparse.Namespace) -> None:
    """The losses of `variants`, and how far the means of a tenth of the steps lie apart."""
    ready(variants, asks)
    losses = [ask("curve", options.loss_curves)[0] for ask in asks]
    print("  ".join(["steps     ", *(f"{variant.name:>10}" for variant in variants)]))
    part = max(1, options.loss_curves // 10)
    greatest = 0.0
    for first in range(0, options.loss_curves, part):
        means = [statistics.mean(curve[first : first + part]) for curve in losses]
        greatest = max(greatest, *(abs(mean - means[-1]) / means[-1] for mean in means))
        print("  ".join([f"{first:4}..{first + part - 1:<4}", *(f"{mean:10.4f}" for mean in means)]))
    single = max(abs(a - b) / b for a, b in zip(losses[0], losses[-1], strict=True))
    print(f"greatest relative difference: {greatest:.2%} of such a mean, {single:.2%} of one step's loss", flush=True)


def _profile(found: list[tuple[float, int, str]]) -> str:
    """Where the GPU's time goes: by kernel, and by family of kernels."""
    total = sum(ms for ms, _, _ in found)
    families: dict[str, float] = dict.fromkeys(FAMILIES, 0.0)
    for ms, _, name in found:
        families[next(family for family, pattern in FAMILIES.items() if re.search(pattern, name))] += ms
    shares = [f"{family} {ms / PROFILED_STEPS:.1f} ({ms / total:.1%})" for family, ms in families.items() if ms]
    lines = [
        f"  {ms / PROFILED_STEPS:8.3f} {ms / total:6.1%} x{count // PROFILED_STEPS:<4} {name[:110]}"
        for ms, count, name in sorted(found, reverse=True)[:SHOWN_OPERATORS]
    ]
    return "\n".join([*lines, f"  {total / PROFILED_STEPS:8.3f} in all: " + "; ".join(shares)])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Cost of a training step on one GPU.")
    parser.add_argument("--workload", nargs="+", choices=BATCHES, default=list(BATCHES))
    parser.add_argument("--batch", nargs="+", type=int, help="images a step (default: ssd 16 and 128, segmentation 8)")
    parser.add_argument("--crop", help="of segmentation, in px (default 800,800)")
    parser.add_argument("--reference", type=Path, metavar="DIR", help="checkouts of NVIDIA's programs")
    parser.add_argument("--ours", action="append", metavar="NAME=FLAGS", help=f"default: {', '.join(OURS)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn, about")
    parser.add_argument("--at-once", action="store_true", help="compile all variants beside each other: no `ready`")
    parser.add_argument("--profile", action="store_true", help=f"the {SHOWN_OPERATORS} operators that take most")
    parser.add_argument("--loss-curves", type=int, metavar="STEPS", help="train instead, and print the losses")
    options = parser.parse_args()
    options.ours = options.ours or (CURVES if options.loss_curves else OURS)
    return options


if __name__ == "__main__":
    main()
