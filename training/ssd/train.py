"""One trial of SSD: build, warm up on synthetic batches, open the data, measure."""

from __future__ import annotations

import random

import numpy as np
import torch

from training.common.console import Console
from training.common.ddp import wrap
from training.common.loader import Loader
from training.common.loop import Loop
from training.common.optimizer import sgd
from training.common.precision import Precision
from training.common.program import Write
from training.common.step import Inputs, Training
from training.common.warmup import warm_up
from training.ssd.args import Options
from training.ssd.boxes import default_boxes
from training.ssd.loss import ssd_loss
from training.ssd.model import SSD300, parameter_groups, resnet50_backbone
from training.ssd.synthetic import SyntheticLoader, synthetic_inputs
from training.ssd.trial import Trial


def train(options: Options, write: Write) -> None:
    """Runs the trial that `options` describe, on this rank. Raises UserError and TrainingError."""
    trial = Trial.open(options)
    gang, measurement, console = trial.gang, options.measurement, Console(trial.gang.rank)
    training = _build(trial, write, console)

    inputs = synthetic_inputs(options.batch_per_gpu, trial.classes, len(default_boxes()), gang.device)
    synthetic = warm_up(
        training, inputs, options.batch_per_gpu, gang, measurement.warmup_steps, measurement.synthetic_steps
    )
    if synthetic.steps:
        write(synthetic)
        rate = synthetic.images * gang.world_size / synthetic.seconds
        console.say(f"synthetic batches: {rate:.1f} images/s over all ranks ({synthetic.steps} steps)")

    Loop(
        training=training,
        loader=_loader(trial, inputs),
        schedule=torch.optim.lr_scheduler.MultiStepLR(training.optimizer, list(options.milestones), gamma=0.1),
        gang=gang,
        length=options.length,
        window_steps=measurement.window_steps,
        write=write,
        console=console,
    ).run()
    gang.leave()


def _build(trial: Trial, write: Write, console: Console) -> Training:
    """Model, DDP, optimiser and precision, and the events and lines that tell of them."""
    options, device = trial.options, trial.gang.device
    _seed_everything(trial.seed + trial.gang.rank)
    precision = Precision.choose(options.measurement.precision, options.mixed_precision, device)
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    model = SSD300(trial.classes, resnet50_backbone(options.backbone_path)).to(device, memory_format=layout)
    wrapped = wrap(model, trial.gang, options.measurement.ddp)
    groups = parameter_groups(model, options.weight_decay)
    optimizer = sgd(groups, trial.learning_rate, options.momentum, fused=device.type == "cuda")

    def loss(inputs: Inputs) -> torch.Tensor:
        images, target_offsets, target_labels = inputs
        offsets, scores = wrapped.model(images.contiguous(memory_format=layout))
        return ssd_loss(offsets, scores, target_offsets, target_labels)

    write(trial.run_start(model, wrapped.ddp, precision.name))
    trial.say(console, f"{wrapped.ddp} ({wrapped.reason})", precision.name)
    return Training(wrapped.model, optimizer, precision, loss)


def _loader(trial: Trial, inputs: Inputs) -> Loader:
    if trial.options.loader == "synthetic":
        return SyntheticLoader(inputs, trial.steps_per_pass)
    from training.ssd.pipeline import DaliLoader  # not above: synthetic trials run without DALI

    return DaliLoader(
        trial.layout,
        trial.annotations,
        trial.gang,
        batch_per_gpu=trial.options.batch_per_gpu,
        threads=trial.threads,
        seed=trial.seed,
    )


def _seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
