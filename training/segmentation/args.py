"""The command line of the segmentation program: the reference's flags and ours. Never imports torch.

Differences from NVIDIA's semantic-segmentation, with the reason:

* `--arch` has a default that exists.
* The data is found by `--set_cityscapes_root` or CITYSCAPES_DATASET: there is no config.py to edit.
* Without `--apex` ranks still train together.
* The trunk's weights are random unless `--trunk_weights` names a file: nothing is downloaded.
* A checkpoint is written after every epoch, measured or not, and another training's are not replaced. `--no-result_dir`
  writes none, for a measured trial, nor does `--test_mode` unless a folder is named.
* `--resume` restores everything.
* `--val_freq n` measures after every nth epoch, and so after the last; `--cv 3` on val only.
* Class-uniform sampling ends at `--max_cu_epoch`, as its name says.
* `--rlx_off_epoch` is the epoch at which scl-poly begins anew, and no more: there is no border relaxation to end.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
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

ARCHS = ("deepv3.DeepV3PlusW38", "deepv3.DeepV3PlusR50")
OPTIMIZERS = ("sgd", "adam", "radam")
SCHEDULES = ("poly", "poly2", "scl-poly")
MODES = ("training", "evaluation")
ROOT_VARIABLE = "CITYSCAPES_DATASET"  # as for cityscapesScripts
_BATCH_SIZE = 2
DEFAULT_TILE = 1024  # px
_RESULT_DIR = Path("logs")
_TEST_STEPS = 2  # of --test_mode


@dataclass(frozen=True)
class Options:
    """A parsed command line. `crop` is height, width in px; batches in images; the rate is not scaled by the GPUs.

    `uniform_share` of an epoch's crops are class-uniform until `max_cu_epoch`. `snapshot` gives weights only, `resume`
    everything. A checkpoint is written to `result_dir` after every epoch. `cv` is explained at `SegmentationSet.open`, and
    `lr_schedule` to `repoly` at `schedule.factor`.
    """

    root: Path | None
    mode: str
    arch: str
    cv: int
    epochs: int
    max_cu_epoch: int
    batch_per_gpu: int
    eval_batch: int
    num_workers: int
    uniform_share: float
    uniform_tile: int
    crop: tuple[int, int]
    scale_min: float
    scale_max: float
    color_aug: float
    learning_rate: float
    lr_schedule: str
    poly_exp: float
    poly_step: int
    rlx_off_epoch: int
    rescale: float
    repoly: float
    momentum: float
    weight_decay: float
    optimizer: str
    syncbn: bool
    snapshot: Path | None
    resume: Path | None
    trunk_weights: Path | None
    result_dir: Path | None
    save_predictions: Path | None
    val_freq: int
    test_mode: bool
    seed: int | None
    mixed_precision: bool
    common: CommonOptions


def parse(argv: Sequence[str]) -> Options:
    """The options that `argv` (without the program's name), LOCAL_RANK and WORLD_SIZE give. Raises UserError."""
    found = _parser().parse_args(argv)
    _check(found)
    common = common_options(found)
    if found.test_mode:
        common = replace(common, steps=_TEST_STEPS, seconds=None)
    return Options(
        root=_root(found.set_cityscapes_root),
        mode=found.mode,
        arch=found.arch,
        cv=found.cv,
        epochs=found.max_epoch,
        max_cu_epoch=found.max_cu_epoch,
        batch_per_gpu=batch_per_gpu(found.bs_trn, found.global_batch_size, _BATCH_SIZE),
        eval_batch=found.bs_val,
        num_workers=found.num_workers,
        uniform_share=found.class_uniform_pct,
        uniform_tile=found.class_uniform_tile,
        crop=_crop(found.crop_size),
        scale_min=found.scale_min,
        scale_max=found.scale_max,
        color_aug=found.color_aug,
        learning_rate=found.lr,
        lr_schedule=found.lr_schedule,
        poly_exp=found.poly_exp,
        poly_step=found.poly_step,
        rlx_off_epoch=found.rlx_off_epoch,
        rescale=found.rescale,
        repoly=found.repoly,
        momentum=found.momentum,
        weight_decay=found.weight_decay,
        optimizer=found.optimizer,
        syncbn=found.syncbn,
        snapshot=found.snapshot,
        resume=found.resume,
        trunk_weights=found.trunk_weights,
        result_dir=_result_dir(found),
        save_predictions=found.save_predictions,
        val_freq=found.val_freq,
        test_mode=found.test_mode,
        seed=found.seed,
        mixed_precision=found.fp16,
        common=common,
    )


def length(options: Options, first_epoch: int) -> Length:
    """How long a run from `first_epoch` on is. Raises UserError if there is nothing left to train."""
    common = options.common
    if common.steps is None and common.seconds is None and first_epoch >= options.epochs:
        raise UserError(
            f"the checkpoint has {first_epoch} epochs behind it and --max_epoch {options.epochs} asks for no more; "
            "ask for more"
        )
    return Length.choose(common.steps, common.seconds, options.epochs - first_epoch)


def root(options: Options) -> Path:
    """Where the data is. Raises UserError."""
    if options.root is None:
        raise UserError(
            f"no data: give --set_cityscapes_root, the folder with leftImg8bit/ and gtFine/, or set {ROOT_VARIABLE}"
        )
    return options.root


def _root(given: Path | None) -> Path | None:
    named = os.environ.get(ROOT_VARIABLE)
    return given or (Path(named) if named else None)


def _result_dir(found: argparse.Namespace) -> Path | None:
    """Absolute: a training says where it will write."""
    if found.no_result_dir or (found.test_mode and found.result_dir is None):
        return None
    return (found.result_dir or _RESULT_DIR).absolute()


def _check(found: argparse.Namespace) -> None:
    """Raises UserError for flags that contradict each other."""
    if found.apex and found.ddp == "torch":
        raise UserError("--apex contradicts --ddp torch; give one of them")
    if found.fp16 and found.precision not in ("auto", "fp16"):
        raise UserError(f"--fp16 contradicts --precision {found.precision}; give one of them")
    if found.scale_min > found.scale_max:
        raise UserError(f"--scale_min {found.scale_min:g} is above --scale_max {found.scale_max:g}")
    if found.lr_schedule == "scl-poly" and not 0 <= found.rlx_off_epoch < found.max_epoch:
        raise UserError(
            f"--lr_schedule scl-poly begins anew at --rlx_off_epoch, which is {found.rlx_off_epoch}; "
            f"give one from 0 to {found.max_epoch - 1}, below --max_epoch"
        )
    if found.snapshot and found.resume:
        raise UserError("--snapshot (weights only) and --resume (everything) contradict each other; give one of them")
    if found.mode == "evaluation" and not (found.snapshot or found.resume):
        raise UserError("--mode evaluation needs --snapshot: a file that was saved in --result_dir, or that folder")
    if not found.apex and found.ddp == "auto":
        found.ddp = "torch"


def _crop(text: str) -> tuple[int, int]:
    """`800,800` is height, width; `896` is a square."""
    try:
        sides = [positive_int(part) for part in text.split(",")]
    except (ValueError, argparse.ArgumentTypeError):
        sides = []
    if len(sides) not in (1, 2):
        raise UserError(f"--crop_size {text!r} is neither a side in pixels nor height,width")
    return sides[0], sides[-1]


def _fraction(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to 1")
    return value


def _not_negative(text: str) -> float:
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="train.py", description="Train DeepLabV3+ on Cityscapes, or evaluate it.", allow_abbrev=False)
    parser.add_argument("--set_cityscapes_root", type=Path, metavar="DIR", help="folder with leftImg8bit/ and gtFine/")
    parser.add_argument("--dataset", choices=("cityscapes",), default="cityscapes")
    parser.add_argument(
        "--cv", type=natural_int, default=0, help="0: train and val; 1, 2: other cities; 3: train on both"
    )
    parser.add_argument("--mode", choices=MODES, default="training")
    parser.add_argument("--arch", default=ARCHS[0], help=" or ".join(ARCHS))
    parser.add_argument("--max_epoch", type=positive_int, default=180)
    parser.add_argument("--max_cu_epoch", type=natural_int, default=150, help="class-uniform sampling ends here")
    parser.add_argument("--bs_trn", type=positive_int, help="images per GPU and step (default 2)")
    parser.add_argument("--global-batch-size", type=positive_int, help="images of all GPUs a step: strong scaling")
    parser.add_argument("--bs_val", type=positive_int, default=1)
    parser.add_argument(
        "--num_workers", type=positive_int, default=4, help="decoding threads (torch: processes) of each process"
    )
    parser.add_argument("--class_uniform_pct", type=_fraction, default=0.5)
    parser.add_argument("--class_uniform_tile", type=positive_int, default=DEFAULT_TILE, help="px")
    parser.add_argument("--crop_size", default="896", help="px: a side, or height,width")
    parser.add_argument("--scale_min", type=positive_float, default=0.5)
    parser.add_argument("--scale_max", type=positive_float, default=2.0)
    parser.add_argument("--color_aug", type=_fraction, default=0.25)
    parser.add_argument("--lr", type=positive_float, default=0.002)
    parser.add_argument("--lr_schedule", choices=SCHEDULES, default="poly")
    parser.add_argument("--poly_exp", type=_not_negative, default=1.0)
    parser.add_argument("--poly_step", type=int, default=110, help="poly2 doubles --poly_exp from this epoch on")
    parser.add_argument("--rlx_off_epoch", type=int, default=-1, help="scl-poly begins anew at this epoch")
    parser.add_argument("--rescale", type=positive_float, default=1.0, help="scl-poly: the rate then, in --lr")
    parser.add_argument("--repoly", type=_not_negative, default=1.5, help="scl-poly: the exponent then")
    parser.add_argument("--momentum", type=_not_negative, default=0.9)
    parser.add_argument("--weight_decay", type=_not_negative, default=1e-4)
    parser.add_argument("--optimizer", choices=OPTIMIZERS, default="sgd")
    parser.add_argument("--syncbn", action="store_true", help="batch normalisation over all ranks")
    parser.add_argument("--apex", action="store_true", help="APEX's DDP where the installed one has it, else torch's")
    parser.add_argument("--fp16", action="store_true", help="mixed precision on GPU")
    parser.add_argument("--snapshot", type=Path, help="begin with the weights of this checkpoint")
    parser.add_argument("--resume", type=Path, help="go on with this checkpoint, or the newest of a folder")
    parser.add_argument("--trunk_weights", type=Path, help="a pretrained trunk's state dict")
    results = parser.add_mutually_exclusive_group()
    results.add_argument(
        "--result_dir", type=Path, metavar="DIR", help="write a checkpoint there after every epoch (default ./logs)"
    )
    results.add_argument("--no-result_dir", action="store_true", help="write none")
    parser.add_argument("--save_predictions", type=Path, metavar="DIR", help="of --mode evaluation, as label ids")
    parser.add_argument("--val_freq", type=positive_int, default=1, help="epochs between two validations")
    parser.add_argument("--test_mode", action="store_true", help=f"{_TEST_STEPS} steps only, no checkpoint")
    parser.add_argument("--seed", type=natural_int, default=None)
    add_common_arguments(parser)
    return parser
