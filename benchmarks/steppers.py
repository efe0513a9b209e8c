"""Training steps that take turns on the same machine: each variant has processes of its own, which step when they are asked.

A variant is named by flags of the training program, which assembles and steps it itself; or it is a reference program's.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # it would tell of every trace that it begins

import torch
import torch.distributed as dist

from training.common.assembly import Assembly, assemble, seed_everything
from training.common.gang import Gang, use_gpu
from training.common.step import Inputs
from training.common.training import Place, Recipe
from training.common.warmup import warm_up
from training.segmentation.args import parse as parse_segmentation
from training.segmentation.recipe import SegmentationRecipe
from training.ssd.args import parse as parse_ssd
from training.ssd.dataset import Layout
from training.ssd.recipe import SsdRecipe

WORKLOADS = ("ssd", "segmentation")
SSD_CLASSES = ["person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle"]
CURVE_BATCHES = 8
CURVE_SCALE = 1024.0  # so that fp16 skips no step, which would shift its curve

Ask = Callable[..., list[Any]]
"""Asks every process of a variant for the same; gives their answers, by rank."""


@dataclass(frozen=True)
class Variant:
    """`flags` are a training program's; `reference` None: it is ours. `processes` form one group where `--ddp` is a flag."""

    name: str
    workload: str
    batch: int
    flags: tuple[str, ...] = ()
    reference: Path | None = None
    processes: int = 1
    device: str = "cuda"

    @classmethod
    def named(
        cls, text: str, workload: str, batch: int, *more: str, processes: int = 1, device: str = "cuda"
    ) -> Variant:
        """From NAME=FLAGS; `more` flags come before those."""
        name, _, flags = text.partition("=")
        return cls(name, workload, batch, (*more, *shlex.split(flags)), None, processes, device)

    @property
    def is_group(self) -> bool:
        return "--ddp" in self.flags


@contextmanager
def started(variants: list[Variant]) -> Iterator[list[Ask]]:
    """The processes of each variant, and how to ask them for something. They end with the block."""
    context = multiprocessing.get_context("spawn")
    pipes: list[list[Connection]] = []
    with tempfile.TemporaryDirectory() as stores:
        try:
            for number, variant in enumerate(variants):
                pipes.append([])
                for rank in range(variant.processes):
                    mine, theirs = context.Pipe()
                    store = str(Path(stores) / str(number))
                    context.Process(target=_serve, args=(theirs, variant, rank, store), daemon=True).start()
                    theirs.close()
                    pipes[-1].append(mine)
            yield [functools.partial(_ask, variant, own) for variant, own in zip(variants, pipes, strict=True)]
        finally:
            for own in pipes:
                for pipe in own:
                    pipe.close()


def prepare(asks: list[Ask]) -> None:
    """Compiles and warms up all at once, which takes less time on many cores; `ready` then tells a time that means nothing."""
    with ThreadPoolExecutor(len(asks)) as pool:
        for _ in pool.map(lambda ask: ask("ready"), asks):
            pass


def ready(variants: list[Variant], asks: list[Ask]) -> list[dict[str, float]]:
    """Makes one after the other ready, so that none disturbs what another measures. With what the slowest tells of itself."""
    told = []
    for variant, ask in zip(variants, asks, strict=True):
        answers = ask("ready")
        told.append({name: max(answer[name] for answer in answers) for name in answers[0]})
        print(f"{variant.name}: ready in {told[-1]['ready_s']:.1f} s", file=sys.stderr, flush=True)
    return told


def ratio_text(own: list[float], base: list[float], digits: int) -> str:
    """Of rates in the same turns: the ratios' median, and from where to where they go."""
    ratios = [mine / other for mine, other in zip(own, base, strict=True)]
    return f"{statistics.median(ratios):5.{digits}f} ({min(ratios):.{digits}f}..{max(ratios):.{digits}f})"


def _ask(variant: Variant, pipes: list[Connection], *request: object) -> list[Any]:
    try:
        for pipe in pipes:
            pipe.send(request)
        return [] if request == ("leave",) else [pipe.recv() for pipe in pipes]
    except (EOFError, BrokenPipeError):
        sys.exit(f"{variant.name}: a process of it ended; what it said stands above")


def _serve(pipe: Connection, variant: Variant, rank: int, store: str) -> None:
    stepper: Stepper | None = None
    with suppress(EOFError):
        while True:
            what, *arguments = pipe.recv()
            if what == "leave":
                break
            stepper = stepper or (Reference(variant) if variant.reference else Ours(variant, rank, store))
            pipe.send(getattr(stepper, what)(*arguments))
    os._exit(0)


class Stepper:
    """A variant in a process of its own. `run` makes so many steps and, if told so, reads the loss after each."""

    run: Callable[[int, bool], None]
    warm_s: float = 0.0
    rank = 0
    device = torch.device("cuda")

    def ready(self) -> dict[str, float]:
        """`step_s` and `peak` (bytes), and `ready_s` until the first steady step."""
        steps = 5 if self.device.type == "cuda" else 1
        self.run(steps, True)
        step_s = min(self.time(steps, False) for _ in range(2))
        peak = torch.cuda.max_memory_allocated() if self.device.type == "cuda" else 0
        return {"ready_s": self.warm_s, "step_s": step_s, "peak": peak}

    def time(self, steps: int, read: bool) -> float:
        """Seconds a step, after a few that are not timed."""
        self.run(self.settling, read)
        self.settle()
        began = time.perf_counter()
        self.run(steps, read)
        self.settle()
        return (time.perf_counter() - began) / steps

    @property
    def settling(self) -> int:
        """Steps until all goes as it then goes on; on the CPU, where they take seconds, one."""
        return 3 if self.device.type == "cuda" else 1

    def settle(self) -> None:
        """Waits for what was begun."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def trace(self, file: str, steps: int) -> None:
        """Every rank traces these steps with torch's profiler, for none to be slower than the others; the first writes it."""
        kinds = [torch.profiler.ProfilerActivity.CPU]
        if self.device.type == "cuda":
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        self.run(self.settling, False)
        self.settle()
        with torch.profiler.profile(activities=kinds) as profile:
            self.run(steps, False)
            self.settle()
        if self.rank == 0:
            profile.export_chrome_trace(file)

    def kernels(self, steps: int) -> list[tuple[float, int, str]]:
        """Of each kernel: ms of GPU time in these steps, launches, name."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            self.run(steps, False)
            self.settle()
        return [(event.self_device_time_total / 1000, event.count, event.key) for event in profile.key_averages()]


class Ours(Stepper):
    """A step of our own program."""

    def __init__(self, variant: Variant, rank: int, store: str) -> None:
        gang = _gang(variant, rank, store)
        self.device, self.rank = gang.device, rank
        self._recipe = recipe = _recipe(variant, gang)
        seed_everything(0)
        self._assembly: Assembly = assemble(
            recipe.model(),
            gang,
            recipe.place.options,
            recipe.mixed_precision,
            recipe.dilated,
            recipe.launch_bound,
            recipe.optimizer,
            recipe.loss,
        )
        self._inputs = recipe.synthetic_inputs()
        self.warm_s = warm_up(self._assembly.training, self._inputs, variant.batch, gang, self.settling, 0).warmup_s
        self._assembly.training.set_learning_rate(0.0)

    def run(self, steps: int, read: bool) -> None:
        for _ in range(steps):
            loss = self._assembly.training.step(self._inputs)
            if read:
                loss.item()

    def gradient_mb(self) -> float:
        """What the ranks exchange in a step, 1e6 bytes, before any compression."""
        return sum(p.numel() * p.element_size() for p in self._assembly.model.parameters() if p.requires_grad) / 1e6

    def curve(self, steps: int) -> list[float]:
        """Trains on noise; the losses of the steps."""
        training, (images, *targets) = self._assembly.training, self._inputs
        if training.precision.name == "fp16":
            training.precision.scaler.update(CURVE_SCALE)
        generator = torch.Generator(images.device).manual_seed(1)
        batches: list[Inputs] = [
            (torch.randn(images.shape, device=images.device, generator=generator), *targets)
            for _ in range(CURVE_BATCHES)
        ]
        training.set_learning_rate(self._recipe.learning_rate(0, 0))
        losses = [training.step(batches[step % CURVE_BATCHES]).clone() for step in range(steps)]
        return torch.stack(losses).tolist()


class Reference(Stepper):
    """A step of NVIDIA's program."""

    def __init__(self, variant: Variant) -> None:
        import gpu_reference

        assert variant.reference is not None
        torch.backends.cudnn.benchmark = True
        recipe = _recipe(variant, _gang(variant, 0, ""))
        build = {"ssd": gpu_reference.ssd, "segmentation": gpu_reference.segmentation}[variant.workload]
        classes = len(recipe.classes) + (variant.workload == "ssd")
        self.run = build(variant.reference, classes, recipe.synthetic_inputs())
        began = time.perf_counter()
        self.run(10, True)
        self.warm_s = time.perf_counter() - began
        torch.cuda.reset_peak_memory_stats()


def _gang(variant: Variant, rank: int, store: str) -> Gang:
    """A group over NCCL with a GPU for each rank, over gloo on CPUs; alone unless the variant is a group."""
    device = torch.device("cpu") if variant.device == "cpu" else torch.device("cuda", rank)
    if device.type == "cuda":
        use_gpu(device)
    else:
        torch.set_num_threads(1)
    if not variant.is_group:
        return Gang(0, 0, 1, 0, device, None)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=variant.processes,
        device_id=device if backend == "nccl" else None,
    )  # fmt: skip
    return Gang(rank, rank, variant.processes, 0, device, backend)


def _recipe(variant: Variant, gang: Gang) -> Recipe:
    """The program's recipe for these flags, without data."""
    nothing = Path(os.devnull)
    data: Any = SimpleNamespace(classes=SSD_CLASSES)
    binding: Any = None
    if variant.workload == "ssd":
        ssd = parse_ssd(["--data", str(nothing), "--batch-size", str(variant.batch), *variant.flags])
        place = Place(ssd.common, gang, binding, None, 0, 1, None)
        return SsdRecipe(ssd, place, Layout(nothing), data, 0, 1)
    precision = [] if "--precision" in variant.flags or variant.device == "cpu" else ["--fp16"]
    options = parse_segmentation([*precision, "--crop_size", "800,800", "--bs_trn", str(variant.batch), *variant.flags])
    place = Place(options.common, gang, binding, None, 0, 1, None)
    return SegmentationRecipe(options, place, data, None, None, 0, 0, 1, None)
