"""What a training step costs on one GPU, beside the reference programs' own steps, as ratios within one run.

    python benchmarks/gpu_steps.py [--workload ssd segmentation] [--batch 16 128] [--reference DIR] [--repeats 5]
                                   [--ours NAME=FLAGS ...] [--profile] [--loss-curves STEPS]

Every variant is a process of its own; they take turns on the GPU, on one synthetic batch. `--ours` names variants by
flags of the training program, which assembles and steps them itself; `--ddp torch` among them makes a group of one
process. `--reference` adds NVIDIA's programs (see gpu_reference.py for DIR). Rates are told with the loss read back
after each step, as the reference does, and once per turn, as our windows do. `ready` is the time from an assembled model
to steady steps: compilation, cuDNN's choice of algorithms, capture. No rate has it in it. `peak` is torch's allocation.

`--loss-curves` trains one CUDA graph in mixed precision and plain single precision from one seed instead, on batches of
noise; `--profile` tells where the GPU's time goes.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import re
import shlex
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import torch

from training.common.assembly import Assembly, assemble, seed_everything
from training.common.gang import Gang
from training.common.step import Inputs
from training.common.training import Place, Recipe
from training.common.warmup import warm_up
from training.segmentation.args import parse as parse_segmentation
from training.segmentation.recipe import SegmentationRecipe
from training.ssd.args import parse as parse_ssd
from training.ssd.dataset import Layout
from training.ssd.recipe import SsdRecipe

BATCHES = {"ssd": [16, 128], "segmentation": [8]}
SSD_CLASSES = ["person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"]
OURS = ["ours=", "graph=--cuda-graph", "graph in DDP=--cuda-graph --ddp torch", "plain=--no-compile"]
CURVES = ["graph=--cuda-graph", "fp32=--precision fp32 --no-allow-tf32 --no-compile"]
REFERENCE = "reference"
CURVE_BATCHES = 8
CURVE_SCALE = 1024.0  # so that fp16 skips no step, which would shift its curve
SHOWN_OPERATORS = 15
PROFILED_STEPS = 3
GIB = 1 << 30
FAMILIES = {
    "memory layout changes": r"nchwToNhwc|nhwcToNchw",
    "resizing": r"upsample",
    "fused by the compiler": r"^triton",
    "convolutions, matrix products": r"fprop|dgrad|wgrad|conv|gemm|nvjet|cutlass|xmma",
    "batch norm": r"bn_|batch_norm",
    "sorting": r"[sS]ort",
    "optimiser, loss scale": r"multi_tensor|[fF]used.?[sS][gG][dD]|amp_",
    "the rest": r"",
}


Ask = Callable[..., Any]


@dataclass(frozen=True)
class Variant:
    """`flags` are a training program's; `reference` None: it is ours."""

    name: str
    workload: str
    batch: int
    flags: tuple[str, ...] = ()
    reference: Path | None = None


def main() -> None:
    options = _options()
    if not torch.cuda.is_available():
        sys.exit("gpu_steps.py measures a GPU, and torch finds none here")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {options.repeats} turns, medians", flush=True)
    with ExitStack() as running:
        rounds = []
        for workload in options.workload:
            for batch in options.batch or BATCHES[workload]:
                variants = [_named(text, workload, batch, options.crop) for text in options.ours]
                if options.reference and not options.loss_curves:
                    variants.insert(0, Variant(REFERENCE, workload, batch, reference=options.reference.resolve()))
                rounds.append((variants, running.enter_context(_started(variants))))
        for variants, asks in rounds:
            size = f"batch {variants[0].batch}" + (f", crop {options.crop}" if options.crop else "")
            print(f"\n== {variants[0].workload}, {size}", flush=True)
            (_curves if options.loss_curves else _compare)(variants, asks, options)
            for ask in asks:
                ask("leave")


def _compare(variants: list[Variant], asks: list[Ask], options: argparse.Namespace) -> None:
    children = _ready(variants, asks)
    rates: dict[tuple[str, bool], list[float]] = {}
    for _ in range(options.repeats):
        for variant, (ready, ask) in zip(variants, children, strict=True):
            for read in (True, False):
                steps = max(3, round(options.seconds / ready["step_s"]))
                rates.setdefault((variant.name, read), []).append(variant.batch * steps / ask("time", steps, read))
    first = variants[0].name
    print(f"{'':26} read each step             read once a turn           peak GiB   ready s")
    for variant, (ready, _) in zip(variants, children, strict=True):
        cells = []
        for read in (True, False):
            found, base = rates[variant.name, read], rates[first, read]
            ratios = [mine / other for mine, other in zip(found, base, strict=True)]
            spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
            cells.append(f"{statistics.median(found):7.1f}/s {statistics.median(ratios):5.2f} ({spread})")
        print(f"{variant.name:26} {'   '.join(cells)}   {ready['peak'] / GIB:7.2f}   {ready['ready_s']:7.1f}")
    sys.stdout.flush()
    if options.profile:
        for variant, (_, ask) in zip(variants, children, strict=True):
            print(f"-- {variant.name}, ms of GPU time a step\n{ask('profile')}", flush=True)


def _curves(variants: list[Variant], asks: list[Ask], options: argparse.Namespace) -> None:
    """The losses of `variants`, and how far the means of a tenth of the steps lie apart."""
    losses = [ask("curve", options.loss_curves) for _, ask in _ready(variants, asks)]
    print("  ".join(["steps     ", *(f"{variant.name:>10}" for variant in variants)]))
    part = max(1, options.loss_curves // 10)
    greatest = 0.0
    for first in range(0, options.loss_curves, part):
        means = [statistics.mean(curve[first : first + part]) for curve in losses]
        greatest = max(greatest, *(abs(mean - means[-1]) / means[-1] for mean in means))
        print("  ".join([f"{first:4}..{first + part - 1:<4}", *(f"{mean:10.4f}" for mean in means)]))
    single = max(abs(a - b) / b for a, b in zip(losses[0], losses[-1], strict=True))
    print(f"greatest relative difference: {greatest:.2%} of such a mean, {single:.2%} of one step's loss", flush=True)


def _ready(variants: list[Variant], asks: list[Ask]) -> list[tuple[dict[str, float], Ask]]:
    """Makes one after the other ready, so that none disturbs what another measures. With what each tells of itself."""
    children = []
    for variant, ask in zip(variants, asks, strict=True):
        children.append((ask("ready"), ask))
        print(f"{variant.name}: ready in {children[-1][0]['ready_s']:.1f} s", file=sys.stderr, flush=True)
    return children


@contextmanager
def _started(variants: list[Variant]) -> Iterator[list[Ask]]:
    """One process each, and how to ask it for something."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    try:
        for variant in variants:
            mine, theirs = context.Pipe()
            context.Process(target=_serve, args=(theirs, variant), daemon=True).start()
            theirs.close()
            pipes.append(mine)
        yield [functools.partial(_ask, pipe) for pipe in pipes]
    finally:
        for pipe in pipes:
            pipe.close()


def _ask(pipe: Connection, *request: object) -> Any:
    pipe.send(request)
    return None if request == ("leave",) else pipe.recv()


def _serve(pipe: Connection, variant: Variant) -> None:
    stepper: _Stepper | None = None
    with suppress(EOFError):
        while True:
            what, *arguments = pipe.recv()
            if what == "leave":
                break
            stepper = stepper or (_Reference(variant) if variant.reference else _Ours(variant))
            pipe.send(getattr(stepper, what)(*arguments))
    os._exit(0)


class _Stepper:
    """A variant in its own process. `run` makes so many steps and, if told so, reads the loss after each."""

    run: Callable[[int, bool], None]
    warm_s: float = 0.0

    def ready(self) -> dict[str, float]:
        self.run(5, True)
        step_s = min(self.time(5, False) / 5 for _ in range(2))
        return {"ready_s": self.warm_s, "step_s": step_s, "peak": torch.cuda.max_memory_allocated()}

    def time(self, steps: int, read: bool) -> float:
        """Seconds of the steps, after two that are not timed."""
        self.run(2, read)
        torch.cuda.synchronize()
        began = time.perf_counter()
        self.run(steps, read)
        torch.cuda.synchronize()
        return time.perf_counter() - began

    def profile(self) -> str:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            self.run(PROFILED_STEPS, False)
            torch.cuda.synchronize()
        found = [(event.self_device_time_total / 1000, event.count, event.key) for event in profile.key_averages()]
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


class _Ours(_Stepper):
    def __init__(self, variant: Variant) -> None:
        self._recipe, gang = _recipe(variant)
        place, recipe = self._recipe.place, self._recipe
        seed_everything(0)
        self._assembly: Assembly = assemble(
            recipe.model(),
            gang,
            place.options,
            recipe.mixed_precision,
            recipe.dilated,
            recipe.optimizer,
            recipe.loss,
        )
        self._inputs = recipe.synthetic_inputs()
        self.warm_s = warm_up(self._assembly.training, self._inputs, variant.batch, gang, 3, 0).warmup_s
        self._assembly.training.set_learning_rate(0.0)

    def run(self, steps: int, read: bool) -> None:
        for _ in range(steps):
            loss = self._assembly.training.step(self._inputs)
            if read:
                loss.item()

    def curve(self, steps: int) -> list[float]:
        training, (images, *targets) = self._assembly.training, self._inputs
        if training.precision.name == "fp16":
            training.precision.scaler.update(CURVE_SCALE)
        generator = torch.Generator(images.device).manual_seed(1)
        batches: list[Inputs] = [
            (torch.randn(images.shape, device=images.device, generator=generator), *targets)
            for _ in range(CURVE_BATCHES)
        ]
        training.set_learning_rate(self._recipe.learning_rate(0, 0))
        losses = [training.step(batches[step % CURVE_BATCHES]) for step in range(steps)]
        return torch.stack(losses).tolist()


class _Reference(_Stepper):
    def __init__(self, variant: Variant) -> None:
        import gpu_reference

        assert variant.reference is not None
        torch.backends.cudnn.benchmark = True
        recipe, _ = _recipe(variant)
        build = {"ssd": gpu_reference.ssd, "segmentation": gpu_reference.segmentation}[variant.workload]
        classes = len(recipe.classes) + (variant.workload == "ssd")
        self.run = build(variant.reference, classes, recipe.synthetic_inputs())
        began = time.perf_counter()
        self.run(10, True)
        self.warm_s = time.perf_counter() - began
        torch.cuda.reset_peak_memory_stats()


def _recipe(variant: Variant) -> tuple[Recipe, Gang]:
    """The program's recipe for these flags, without data."""
    gang = Gang(0, 0, 1, 0, torch.device("cuda", 0), None)
    if "--ddp" in variant.flags:
        gang = _group_of_one(gang)
    nothing = Path(os.devnull)
    data: Any = SimpleNamespace(classes=SSD_CLASSES)
    binding: Any = None
    if variant.workload == "ssd":
        ssd = parse_ssd(["--data", str(nothing), "--batch-size", str(variant.batch), *variant.flags])
        place = Place(ssd.common, gang, binding, None, 0, 1, None)
        return SsdRecipe(ssd, place, Layout(nothing), data, 0, 1), gang
    precision = [] if "--precision" in variant.flags else ["--fp16"]
    options = parse_segmentation([*precision, "--crop_size", "800,800", "--bs_trn", str(variant.batch), *variant.flags])
    place = Place(options.common, gang, binding, None, 0, 1, None)
    return SegmentationRecipe(options, place, data, None, None, 0, 0, 1, None), gang


def _group_of_one(alone: Gang) -> Gang:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.distributed.init_process_group("nccl", device_id=alone.device)
    return Gang(0, 0, 1, 0, alone.device, "nccl")


def _named(text: str, workload: str, batch: int, crop: str | None) -> Variant:
    name, _, flags = text.partition("=")
    cropped = ["--crop_size", crop] if crop and workload == "segmentation" else []
    return Variant(name, workload, batch, (*cropped, *shlex.split(flags)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Cost of a training step on one GPU.")
    parser.add_argument("--workload", nargs="+", choices=BATCHES, default=list(BATCHES))
    parser.add_argument("--batch", nargs="+", type=int, help="images a step (default: ssd 16 and 128, segmentation 8)")
    parser.add_argument("--crop", help="of segmentation, in px (default 800,800)")
    parser.add_argument("--reference", type=Path, metavar="DIR", help="checkouts of NVIDIA's programs")
    parser.add_argument("--ours", action="append", metavar="NAME=FLAGS", help=f"default: {', '.join(OURS)}")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of a turn, about")
    parser.add_argument("--profile", action="store_true", help=f"the {SHOWN_OPERATORS} operators that take most")
    parser.add_argument("--loss-curves", type=int, metavar="STEPS", help="train instead, and print the losses")
    options = parser.parse_args()
    options.ours = options.ours or (CURVES if options.loss_curves else OURS)
    return options


if __name__ == "__main__":
    main()
