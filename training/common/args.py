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
COMPRESSIONS = ("none", "bf16")
BACKENDS = ("auto", "gloo", "nccl")
LOADERS = ("dali", "torch", "synthetic")
DATA_LAYOUTS = ("channels_last", "channels_first")
COMPILE_MODES = ("default", "reduce-overhead", "max-autotune")
NOT_COMPILED = "off"


class Parser(argparse.ArgumentParser):
    """Refuses a wrong command line with one sentence instead of a usage text."""

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see --help)")


@dataclass(frozen=True)
class CommonOptions:
    """Choices that say how a program runs and not what is trained, the same for both programs.

    `data_layout` None: channels last on a GPU, channels first on the CPU. `compile_mode`, `cuda_graph` None: as
    `assemble` chooses; a mode may also be NOT_COMPILED. `window_steps` None: as `Loop` does.
    """

    precision: str
    allow_tf32: bool
    ddp: str
    backend: str
    ddp_bucket_mb: float | None
    ddp_bucket_view: bool
    ddp_static_graph: bool
    ddp_compress: str
    cuda: bool
    data_layout: str | None
    compile_mode: str | None
    cuda_graph: bool | None
    activation_checkpointing: bool
    loader: str
    antialias: bool
    deterministic: bool
    binding: bool
    local_rank: int
    events: Path | None
    record_images: bool
    json_summary: Path | None
    log_interval: int
    steps: int | None
    seconds: float | None
    window_steps: int | None
    warmup_steps: int
    synthetic_steps: int


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the shared flags. `--local-rank` comes from older launchers; torchrun sets LOCAL_RANK instead."""
    how = parser.add_argument_group("how it runs")
    how.add_argument("--precision", choices=PRECISIONS, default="auto", help="auto: fp16 on GPU, fp32 on CPU")
    how.add_argument(
        "--allow-tf32", action=argparse.BooleanOptionalAction, default=True, help="for what stays in single precision"
    )
    how.add_argument("--ddp", choices=DDPS, default="auto", help="auto: apex where it has one, else torch")
    how.add_argument(
        "--ddp-bucket-mb",
        type=positive_float,
        help="MiB of gradients that torch's DDP reduces at once (torch's default: 25)",
    )
    how.add_argument(
        "--ddp-bucket-view",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="off: torch's DDP keeps gradients beside its buckets and copies them, as torch does by default",
    )
    how.add_argument("--ddp-static-graph", action="store_true", help="tell torch's DDP that all steps are alike")
    how.add_argument(
        "--ddp-compress",
        choices=COMPRESSIONS,
        default="none",
        help="exchange gradients in bf16: half the bytes, coarser",
    )
    how.add_argument("--backend", choices=BACKENDS, default="auto", help="auto: nccl on GPU, gloo on CPU")
    how.add_argument("--no-cuda", action="store_true", help="run on the CPU")
    how.add_argument("--data-layout", choices=DATA_LAYOUTS, help="default: channels_last on GPU, channels_first on CPU")
    compiled = how.add_mutually_exclusive_group()
    compiled.add_argument(
        "--compile",
        choices=COMPILE_MODES,
        nargs="?",
        const="default",
        metavar="MODE",
        help="torch.compile the step; the default on a GPU where it can be (not with --deterministic). MODE: default; "
        "reduce-overhead, whose CUDA graphs are several; max-autotune",
    )
    compiled.add_argument("--no-compile", dest="compile", action="store_const", const=NOT_COMPILED)
    how.add_argument(
        "--cuda-graph",
        action=argparse.BooleanOptionalAction,
        help="launch a step as one CUDA graph, torch DDP's exchange included: SSD's default on a GPU (not with "
        "--no-compile, --deterministic, gloo or apex's DDP)",
    )
    how.add_argument(
        "--activation-checkpointing",
        action="store_true",
        help="keep only the inputs of residual blocks and compute the rest again in the backward pass: W38, batch 8, takes "
        "10 instead of 18 GiB and makes 14 %% fewer images/s on an H200",
    )
    how.add_argument("--loader", choices=LOADERS, default="dali", help="synthetic: batches made on the device")
    how.add_argument(
        "--antialias", action=argparse.BooleanOptionalAction, default=True, help="off: faster resizing, coarser images"
    )
    how.add_argument("--deterministic", action="store_true", help="the same bits in every run, more slowly")
    how.add_argument(
        "--binding", action=argparse.BooleanOptionalAction, default=True, help="run near this rank's GPU or NUMA node"
    )
    how.add_argument("--local-rank", "--local_rank", type=int, default=None)
    told = parser.add_argument_group("what it tells")
    told.add_argument("--events", type=Path, metavar="DIR", help="each rank writes DIR/rank<k>/events.jsonl")
    told.add_argument("--record-images", action="store_true", help="and images.jsonl: which images, step by step")
    told.add_argument("--json-summary", type=Path, metavar="FILE", help="rank 0 writes DLLogger's JSON lines")
    told.add_argument("--log-interval", type=positive_int, default=20, help="steps between losses in --json-summary")
    measured = parser.add_argument_group("how long, and how it is measured")
    length = measured.add_mutually_exclusive_group()
    length.add_argument("--steps", type=positive_int, help="stop after this many steps, whatever the epochs say")
    length.add_argument("--seconds", type=positive_float, help="stop after this many seconds, whatever the epochs say")
    measured.add_argument(
        "--window-steps",
        type=positive_int,
        help="steps between two barriers; as many as take 5 s by default, and no fewer than 50",
    )
    measured.add_argument("--warmup-steps", type=natural_int, default=3, help="synthetic steps that are not timed")
    measured.add_argument("--synthetic-steps", type=natural_int, default=5, help="synthetic steps that are timed")


def common_options(found: argparse.Namespace) -> CommonOptions:
    """The shared part of a parsed command line. Raises UserError."""
    if found.record_images and found.events is None:
        raise UserError("--record-images writes beside the event log: give --events DIR too")
    return CommonOptions(
        precision=found.precision,
        allow_tf32=found.allow_tf32,
        ddp=found.ddp,
        backend=found.backend,
        ddp_bucket_mb=found.ddp_bucket_mb,
        ddp_bucket_view=found.ddp_bucket_view,
        ddp_static_graph=found.ddp_static_graph,
        ddp_compress=found.ddp_compress,
        cuda=not found.no_cuda,
        data_layout=found.data_layout,
        compile_mode=found.compile,
        cuda_graph=found.cuda_graph,
        activation_checkpointing=found.activation_checkpointing,
        loader=found.loader,
        antialias=found.antialias,
        deterministic=found.deterministic,
        binding=found.binding,
        local_rank=found.local_rank if found.local_rank is not None else int(os.environ.get("LOCAL_RANK", "0")),
        events=found.events,
        record_images=found.record_images,
        json_summary=found.json_summary,
        log_interval=found.log_interval,
        steps=found.steps,
        seconds=found.seconds,
        window_steps=found.window_steps,
        warmup_steps=found.warmup_steps,
        synthetic_steps=found.synthetic_steps,
    )


def batch_per_gpu(asked: int | None, global_batch: int | None, default: int) -> int:
    """`asked`, or this rank's share of a global batch (WORLD_SIZE says of how many), or the default. Raises UserError."""
    if global_batch is None:
        return asked or default
    if asked is not None:
        raise UserError("--global-batch-size and a batch size per GPU contradict each other; give one of them")
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if global_batch % world_size:
        near = max(world_size, round(global_batch / world_size) * world_size)
        raise UserError(
            f"--global-batch-size {global_batch} cannot be shared by {world_size} ranks; {near} could, for example"
        )
    return global_batch // world_size


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
