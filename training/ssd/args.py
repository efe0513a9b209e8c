"""The command line of the SSD program: the reference's flags and ours. Never imports torch.

Differences from NVIDIA's PyTorch/Detection/SSD, with the reason: `--data` has no default (no dataset is anywhere by
nature); `--save` keeps every epoch under a name that is whole or absent; `--mode evaluation` needs a checkpoint (random
weights have no mAP worth a wait); `--batch-size` is at least 2 in training (the last feature map is 1x1, and batch normalisation
wants more than one value); without `--backbone-path` the weights are random and nothing is downloaded.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.common.args import (
    CommonOptions,
    Parser,
    add_common_arguments,
    batch_per_gpu,
    common_options,
    natural_int,
    positive_float,
    positive_int,
)
from training.common.errors import UserError
from training.common.length import Length

MODES = ("training", "evaluation", "benchmark-training", "benchmark-inference")
BACKBONES = ("resnet18", "resnet34", "resnet50", "resnet101", "resnet152")
_BATCH_SIZE = 32


@dataclass(frozen=True)
class Options:
    """A parsed command line. Batches in images; `learning_rate` is the rate for 32 images a step over all GPUs.

    `warmup` in steps; `milestones` and `evaluation` are epochs from 0. `mixed_precision` is what `--precision auto`
    means on a GPU: fp16, or after `--no-amp` TF32 (fp32 where that is not allowed).
    """

    data: Path
    mode: str
    epochs: int
    batch_per_gpu: int
    eval_batch: int
    num_workers: int
    learning_rate: float
    momentum: float
    weight_decay: float
    warmup: int
    milestones: tuple[int, ...]
    evaluation: tuple[int, ...]
    seed: int | None
    backbone: str
    backbone_path: Path | None
    checkpoint: Path | None
    save: Path | None
    mixed_precision: bool
    benchmark_iterations: int
    benchmark_warmup: int
    common: CommonOptions


def parse(argv: Sequence[str]) -> Options:
    """The options that `argv` (without the program's name), LOCAL_RANK and WORLD_SIZE give. Raises UserError."""
    found = _parser().parse_args(argv)
    batch = batch_per_gpu(found.batch_size, found.global_batch_size, _BATCH_SIZE)
    if found.mode in ("training", "benchmark-training") and batch < 2:
        raise UserError("--batch-size must be at least 2: SSD normalises over the batch on a 1x1 feature map")
    if found.mode == "evaluation" and found.checkpoint is None:
        raise UserError("--mode evaluation needs --checkpoint: a file that --save wrote, or its folder")
    if found.amp is not None and found.precision != "auto" and found.amp != (found.precision in ("fp16", "bf16")):
        raise UserError(
            f"--{'amp' if found.amp else 'no-amp'} contradicts --precision {found.precision}; give one of them"
        )
    return Options(
        data=found.data,
        mode=found.mode,
        epochs=found.epochs,
        batch_per_gpu=batch,
        eval_batch=found.eval_batch_size,
        num_workers=found.num_workers,
        learning_rate=found.learning_rate,
        momentum=found.momentum,
        weight_decay=found.weight_decay,
        warmup=found.warmup,
        milestones=tuple(found.multistep),
        evaluation=tuple(found.evaluation),
        seed=found.seed,
        backbone=found.backbone,
        backbone_path=found.backbone_path,
        checkpoint=found.checkpoint,
        save=found.save,
        mixed_precision=found.amp is not False,
        benchmark_iterations=found.benchmark_iterations,
        benchmark_warmup=found.benchmark_warmup,
        common=common_options(found),
    )


def length(options: Options, first_epoch: int) -> Length:
    """How long a run from `first_epoch` on is. Raises UserError if there is nothing left to train."""
    common = options.common
    if options.mode == "benchmark-training":
        return Length(steps=options.benchmark_warmup + options.benchmark_iterations)
    if common.steps is None and common.seconds is None and first_epoch >= options.epochs:
        raise UserError(
            f"the checkpoint has {first_epoch} epochs behind it and --epochs {options.epochs} asks for no more; ask for more"
        )
    return Length.choose(common.steps, common.seconds, options.epochs - first_epoch)


def learning_rate(options: Options, global_batch: int, steps_per_pass: int, epoch: int, step: int) -> float:
    """The rate of a step: linear warm-up, a tenth from each milestone on, and the reference's rule of 32 images a step."""
    rate = options.learning_rate * global_batch / 32
    done = epoch * steps_per_pass + step
    if done < options.warmup:
        return rate * done / options.warmup
    return rate * 0.1 ** sum(epoch >= milestone for milestone in options.milestones)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="main.py", description="Train SSD300 on COCO annotations, or measure it.", allow_abbrev=False)
    parser.add_argument("--data", "-d", type=Path, required=True, help="folder with annotations/ and train2017/")
    parser.add_argument("--mode", choices=MODES, default="training")
    parser.add_argument("--epochs", "-e", type=positive_int, default=65)
    parser.add_argument("--batch-size", "--bs", type=positive_int, help="images per GPU and step (default 32)")
    parser.add_argument("--global-batch-size", type=positive_int, help="images of all GPUs a step: strong scaling")
    parser.add_argument("--eval-batch-size", "--ebs", type=positive_int, default=32)
    parser.add_argument(
        "--num-workers", type=positive_int, default=8, help="decoding threads (torch: processes) of each process"
    )
    parser.add_argument("--learning-rate", "--lr", type=positive_float, default=2.6e-3, help="times GPUs x batch / 32")
    parser.add_argument("--momentum", "-m", type=float, default=0.9)
    parser.add_argument("--weight-decay", "--wd", type=float, default=5e-4)
    parser.add_argument("--warmup", type=natural_int, default=0, help="steps in which the rate grows from 0")
    parser.add_argument(
        "--multistep", type=natural_int, nargs="*", default=[43, 54], help="epochs that divide the rate by 10"
    )
    parser.add_argument(
        "--evaluation",
        type=natural_int,
        nargs="*",
        default=[21, 31, 37, 42, 48, 53, 59, 64],
        help="epochs (from 0) after which mAP is measured on val2017",
    )
    parser.add_argument("--seed", "-s", type=natural_int, default=None)
    parser.add_argument("--backbone", choices=BACKBONES, default="resnet50")
    parser.add_argument("--backbone-path", type=Path, help="a torchvision state dict of it; else random weights")
    parser.add_argument(
        "--checkpoint", type=Path, help="resume from, or evaluate, this file (or the newest of a folder)"
    )
    parser.add_argument("--save", type=Path, metavar="DIR", help="write a checkpoint after every epoch")
    parser.add_argument(
        "--amp", action=argparse.BooleanOptionalAction, default=None, help="fp16 autocast on GPU (default)"
    )
    parser.add_argument("--benchmark-iterations", type=positive_int, default=20)
    parser.add_argument("--benchmark-warmup", type=natural_int, default=20, help="iterations before those, not counted")
    add_common_arguments(parser)
    return parser
