"""The flags that both training programs share: how a trial is distributed, measured and logged. Never imports torch."""

from __future__ import annotations

import argparse
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from training.common.errors import UserError

PRECISIONS = ("auto", "fp32", "tf32", "bf16", "fp16")
DDPS = ("auto", "torch", "apex")
BACKENDS = ("auto", "gloo", "nccl")


class Parser(argparse.ArgumentParser):
    """Refuses a wrong command line with one sentence instead of a usage text."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see --help)")


@dataclass(frozen=True)
class MeasurementOptions:
    """Choices that say how a trial runs and not what is trained."""

    precision: str
    ddp: str
    backend: str
    cuda: bool
    local_rank: int
    events: Path | None
    steps: int | None
    seconds: float | None
    window_steps: int
    warmup_steps: int
    synthetic_steps: int


def add_measurement_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the shared flags. `--local-rank` comes from older launchers; torchrun sets LOCAL_RANK instead."""
    group = parser.add_argument_group("measurement")
    group.add_argument("--precision", choices=PRECISIONS, default="auto", help="auto: fp16 on GPU, fp32 on CPU")
    group.add_argument("--ddp", choices=DDPS, default="auto", help="auto: apex where it has one, else torch")
    group.add_argument("--backend", choices=BACKENDS, default="auto", help="auto: nccl on GPU, gloo on CPU")
    group.add_argument("--no-cuda", action="store_true", help="train on the CPU")
    group.add_argument("--local-rank", "--local_rank", type=int, default=None)
    group.add_argument("--events", type=Path, metavar="DIR", help="each rank writes DIR/rank<k>/events.jsonl")
    length = group.add_mutually_exclusive_group()
    length.add_argument("--steps", type=positive_int, help="stop after this many steps, whatever --epochs says")
    length.add_argument("--seconds", type=positive_float, help="stop after this many seconds, whatever --epochs says")
    group.add_argument("--window-steps", type=positive_int, default=50, help="steps between two barriers")
    group.add_argument("--warmup-steps", type=natural_int, default=3, help="synthetic steps that are not timed")
    group.add_argument("--synthetic-steps", type=natural_int, default=5, help="synthetic steps that are timed")


def measurement_options(found: argparse.Namespace) -> MeasurementOptions:
    """The shared part of a parsed command line."""
    local_rank = found.local_rank if found.local_rank is not None else int(os.environ.get("LOCAL_RANK", "0"))
    return MeasurementOptions(
        precision=found.precision,
        ddp=found.ddp,
        backend=found.backend,
        cuda=not found.no_cuda,
        local_rank=local_rank,
        events=found.events,
        steps=found.steps,
        seconds=found.seconds,
        window_steps=found.window_steps,
        warmup_steps=found.warmup_steps,
        synthetic_steps=found.synthetic_steps,
    )


def positive_int(text: str) -> int:
    """An argparse type: a whole number of at least 1."""
    return _at_least(1, int(text), text)


def natural_int(text: str) -> int:
    """An argparse type: a whole number of at least 0."""
    return _at_least(0, int(text), text)


def positive_float(text: str) -> float:
    """An argparse type: a finite number above 0."""
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def _at_least(least: int, value: int, text: str) -> int:
    if value < least:
        raise argparse.ArgumentTypeError(f"{text} is below {least}")
    return value
