"""The command line of the SSD program: the reference's flags and ours. Never imports torch."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.common.args import (
    MeasurementOptions,
    Parser,
    add_measurement_arguments,
    measurement_options,
    natural_int,
    positive_float,
    positive_int,
)
from training.common.errors import UserError
from training.common.length import Length

LOADERS = ("dali", "synthetic")
_MODES = ("training", "evaluation", "benchmark-training", "benchmark-inference")


@dataclass(frozen=True)
class Options:
    """A parsed command line. `batch_per_gpu` in images; `learning_rate` is the rate for 32 images a step on one GPU.

    `mixed_precision` is what `--precision auto` means on a GPU: fp16, or TF32 after `--no-amp`.
    """

    data: Path
    epochs: int
    batch_per_gpu: int
    num_workers: int
    learning_rate: float
    momentum: float
    weight_decay: float
    milestones: tuple[int, ...]
    seed: int | None
    backbone_path: Path | None
    mixed_precision: bool
    loader: str
    measurement: MeasurementOptions

    @property
    def length(self) -> Length:
        return Length.choose(self.measurement.steps, self.measurement.seconds, self.epochs)


def parse(argv: Sequence[str]) -> Options:
    """The options that `argv` (without the program's name) and LOCAL_RANK give. Raises UserError."""
    found = _parser().parse_args(argv)
    if found.mode != "training":
        raise UserError(f"--mode {found.mode} is not implemented here; only --mode training is")
    if found.batch_size < 2:
        raise UserError("--batch-size must be at least 2: SSD normalises over the batch on a 1x1 feature map")
    if found.amp is not None and found.precision != "auto" and found.amp != (found.precision in ("fp16", "bf16")):
        raise UserError(
            f"--{'amp' if found.amp else 'no-amp'} contradicts --precision {found.precision}; give one of them"
        )
    return Options(
        data=found.data,
        epochs=found.epochs,
        batch_per_gpu=found.batch_size,
        num_workers=found.num_workers,
        learning_rate=found.learning_rate,
        momentum=found.momentum,
        weight_decay=found.weight_decay,
        milestones=tuple(found.multistep),
        seed=found.seed,
        backbone_path=found.backbone_path,
        mixed_precision=found.amp is not False,
        loader=found.loader,
        measurement=measurement_options(found),
    )


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="main.py", description="Train SSD300 with a ResNet-50 backbone on COCO annotations.", allow_abbrev=False
    )
    parser.add_argument("--data", "-d", type=Path, required=True, help="folder with annotations/ and train2017/")
    parser.add_argument("--epochs", "-e", type=positive_int, default=65)
    parser.add_argument("--batch-size", "--bs", type=positive_int, default=32, help="images per GPU and step")
    parser.add_argument("--mode", choices=_MODES, default="training")
    parser.add_argument("--num-workers", type=positive_int, default=8, help="decoding threads per process")
    parser.add_argument("--learning-rate", "--lr", type=positive_float, default=2.6e-3, help="times GPUs x batch / 32")
    parser.add_argument("--momentum", "-m", type=float, default=0.9)
    parser.add_argument("--weight-decay", "--wd", type=float, default=5e-4)
    parser.add_argument(
        "--multistep", type=natural_int, nargs="*", default=[43, 54], help="epochs that divide the rate by 10"
    )
    parser.add_argument("--seed", "-s", type=natural_int, default=None)
    parser.add_argument("--backbone-path", type=Path, help="a torchvision resnet50 state dict; else random weights")
    parser.add_argument(
        "--amp", action=argparse.BooleanOptionalAction, default=None, help="fp16 autocast on GPU (default)"
    )
    parser.add_argument("--loader", choices=LOADERS, default="dali", help="synthetic: batches made on the device")
    add_measurement_arguments(parser)
    return parser
