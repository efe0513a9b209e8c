"""A trained SSD measured: its mAP on the validation set, or how fast it detects there. No training data is needed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from training.common import facts
from training.common.assembly import memory_layout, seed_everything
from training.common.benchmark import tell_rates
from training.common.binding import Binding
from training.common.checkpoint import check, load
from training.common.compiler import asked_mode
from training.common.gang import Gang
from training.common.inference import start_event
from training.common.precision import Precision
from training.common.program import Write
from training.common.report import Report
from training.ssd.args import Options
from training.ssd.evaluate import ValidationSet, benchmark_inference, evaluate
from training.ssd.model import SSD300
from training.ssd.recipe import PROGRAM, model_name
from training.ssd.reference_checkpoint import is_reference_ssd, load_reference_ssd
from training.ssd.results import tell


@dataclass(frozen=True)
class _Weights:
    """`model` None: the random ones. `epochs` of training are behind them."""

    model: dict[str, Tensor] | None
    classes: list[str]
    epochs: int
    source: str


def infer(options: Options, binding: Binding, write: Write) -> None:
    """`--mode evaluation` or `benchmark-inference`, on this rank. Raises TrainingError."""
    common = options.common
    gang = Gang.join(common.local_rank, common.cuda, common.backend)
    validation = ValidationSet.open(options.data, gang)
    weights = _weights(options, validation)
    precision = Precision.choose(common.precision, options.mixed_precision, common.allow_tf32, gang.device)
    layout = memory_layout(common.data_layout, gang.device)
    seed_everything(options.seed or 0)
    model = SSD300(len(weights.classes) + 1, options.backbone, None if weights.model else options.backbone_path)
    if weights.model:
        model.load_state_dict(weights.model)
    model = model.to(gang.device, memory_format=layout)
    mode = asked_mode(common.compile_mode, gang.device)
    called = torch.compile(model, mode=mode) if mode else model
    workers = facts.useful_workers(options.num_workers, gang.device)
    write(
        start_event(
            program=PROGRAM,
            model_name=model_name(options),
            model=model,
            classes=weights.classes,
            gang=gang,
            precision=precision.name,
            seed=options.seed or 0,
            batch=options.eval_batch,
            workers=workers,
            epochs=weights.epochs,
            binding=binding.reason,
        )
    )
    with Report(gang.rank, gang.world_size, common.json_summary) as report:
        report.say(
            f"{model_name(options)}: {options.mode} on {len(validation.images)} images of {validation.root}, "
            f"{gang.world_size} x batch {options.eval_batch} on {facts.device_name(gang.device)}, {precision.name}"
        )
        report.say(f"weights: {weights.source}")
        if options.mode == "evaluation":
            result = evaluate(
                called,
                validation,
                weights.classes,
                gang,
                options.eval_batch,
                workers,
                precision.autocast,
                layout,
            )
            tell(result, max(weights.epochs - 1, 0), write, report)
        else:
            _benchmark(options, called, validation, gang, workers, precision, layout, report)
    gang.leave()


def _weights(options: Options, validation: ValidationSet) -> _Weights:
    """The classes are the checkpoint's, or where it does not tell, the validation set's in the file's order."""
    if options.checkpoint is not None and (options.checkpoint.is_dir() or not is_reference_ssd(options.checkpoint)):
        found = load(options.checkpoint)
        check(found, PROGRAM, model_name(options), found.classes)
        return _Weights(found.model, found.classes, found.epoch, f"{found.path}, after {found.epoch} epochs")
    if options.checkpoint is None:
        return _Weights(None, validation.categories, 0, "random (no --checkpoint)")
    model = load_reference_ssd(options.checkpoint, len(validation.categories) + 1, options.backbone)
    return _Weights(model, validation.categories, 0, f"{options.checkpoint}, of the reference program")


def _benchmark(
    options: Options,
    model: torch.nn.Module,
    validation: ValidationSet,
    gang: Gang,
    workers: int,
    precision: Precision,
    layout: torch.memory_format,
    report: Report,
) -> None:
    times = benchmark_inference(
        model,
        validation,
        gang,
        options.eval_batch,
        workers,
        options.benchmark_warmup,
        options.benchmark_iterations,
        precision.autocast,
        layout,
    )
    tell_rates(report, options.eval_batch * gang.world_size, times.seconds, times.wait_seconds)
