"""A training from its first event to its last, the same for both programs: each brings a recipe."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from training.common import checkpoint as checkpoints
from training.common import facts
from training.common.args import CommonOptions
from training.common.assembly import Assembly, assemble, seed_everything
from training.common.benchmark import Benchmark
from training.common.binding import Binding
from training.common.checkpoint import Checkpoint
from training.common.errors import UserError
from training.common.gang import Gang
from training.common.length import Length
from training.common.loader import Loader
from training.common.loop import Loop
from training.common.program import Write
from training.common.record import image_record
from training.common.report import Report
from training.common.step import Inputs
from training.common.warmup import warm_up
from training.wire.events import Dataset, RunStart
from training.wire.job import rank_folder


@dataclass(frozen=True)
class Place:
    """Where a training runs and what it goes on from. The same on every rank but for `gang`, `binding` and `workers`.

    `workers` are the loader's, per process. A checkpoint is written to `save` after every epoch.
    """

    options: CommonOptions
    gang: Gang
    binding: Binding
    checkpoint: Checkpoint | None
    seed: int
    workers: int
    save: Path | None

    @classmethod
    def take(
        cls,
        options: CommonOptions,
        binding: Binding,
        checkpoint: Checkpoint | None,
        seed: int | None,
        workers: int,
        save: Path | None,
    ) -> Place:
        """Joins the gang and agrees on the seed. `workers` as asked for. Raises UserError."""
        gang = Gang.join(options.local_rank, options.cuda, options.backend)
        agreed = _seed(seed, checkpoint, gang)
        return cls(options, gang, binding, checkpoint, agreed, facts.useful_workers(workers, gang.device), save)

    @property
    def first_epoch(self) -> int:
        return self.checkpoint.epoch if self.checkpoint else 0

    @property
    def synthetic(self) -> bool:
        return self.options.loader == "synthetic"


class Recipe(Protocol):
    """What a program trains: its model, data, loss and rates. Building one opens no image.

    `epochs` is where the training ends; `mixed_precision` what `--precision auto` means on a GPU, `dilated`
    whether the model has dilated convolutions, `launch_bound` whether a host launches its step more slowly than a GPU runs
    it, `jpeg` whether the images are JPEG.
    """

    program: str
    model_name: str
    classes: list[str]
    batch_per_gpu: int
    epochs: int
    steps_per_pass: int
    mixed_precision: bool
    dilated: bool
    launch_bound: bool

    @property
    def jpeg(self) -> bool: ...

    def dataset(self) -> Dataset: ...

    def model(self) -> nn.Module:
        """With random weights from torch's current random state, or pretrained parts. Raises UserError."""
        ...

    def optimizer(self, model: nn.Module, fused: bool) -> torch.optim.Optimizer: ...

    def loss(self, model: nn.Module, inputs: Inputs) -> Tensor: ...

    def learning_rate(self, epoch: int, step: int) -> float: ...

    def synthetic_inputs(self) -> Inputs:
        """A batch made on the device, images first."""
        ...

    def loader(self, synthetic: Inputs) -> Loader: ...

    def notes(self) -> list[str]:
        """Lines for people about data and weights."""
        ...

    def parameters(self, precision: str) -> dict[str, object]:
        """The first line of the JSON stream."""
        ...

    def evaluation(self, epochs: range) -> Callable[[Assembly, int, Write, Report], None] | None:
        """What measures the weights after an epoch, None if no epoch of `epochs` is due. Raises UserError."""
        ...

    def is_due(self, epoch: int) -> bool: ...


def train(recipe: Recipe, place: Place, how_long: Length, write: Write, benchmark_warmup: int | None = None) -> None:
    """Runs it on this rank. With `benchmark_warmup` every step is a window, and rates come from those after so many."""
    options, gang = place.options, place.gang
    with Report(gang.rank, gang.world_size, options.json_summary, options.log_interval) as report:
        after_epoch = _AfterEpoch.prepare(recipe, place, how_long, write, report)
        assembly = _build(recipe, place)
        _begin(recipe, place, how_long, assembly, write, report)

        inputs = recipe.synthetic_inputs()
        synthetic = warm_up(
            assembly.training, inputs, recipe.batch_per_gpu, gang, options.warmup_steps, options.synthetic_steps
        )
        if synthetic.steps:
            write(synthetic)
            rate = synthetic.images * gang.world_size / synthetic.seconds
            report.say(f"synthetic batches: {rate:.1f} images/s over all ranks ({synthetic.steps} steps)")

        benchmark = None if benchmark_warmup is None else Benchmark(benchmark_warmup, write)
        loop = Loop(
            training=assembly.training,
            loader=recipe.loader(inputs),
            learning_rate=_rate(recipe, place),
            gang=gang,
            length=how_long,
            window_steps=1 if benchmark else options.window_steps,
            write=benchmark.write if benchmark else write,
            report=report,
            first_epoch=place.first_epoch,
            after_epoch=lambda epoch: after_epoch(assembly, epoch),
            jpeg=recipe.jpeg,
        )
        if options.record_images and options.events:
            loop.record = image_record(options.events / rank_folder(gang.rank))
        loop.run()
        if benchmark:
            benchmark.tell(report, gang.world_size)
    assembly.training.release()
    gang.leave()


def _seed(asked: int | None, checkpoint: Checkpoint | None, gang: Gang) -> int:
    """The one asked for, else the checkpoint's, else any: the same on all ranks."""
    if checkpoint is None:
        return gang.share(lambda: random.randrange(10_000) if asked is None else asked)
    if asked not in (None, checkpoint.seed):
        raise UserError(
            f"--seed {asked}: {checkpoint.path} was trained with seed {checkpoint.seed}, on which the order of the "
            "images depends; leave --seed out, or give that one"
        )
    return checkpoint.seed


def _rate(recipe: Recipe, place: Place) -> Callable[[int, int], float]:
    """0 for synthetic batches: they measure compute, and noise must not teach a model until it overflows fp16."""
    return (lambda *_: 0.0) if place.synthetic else recipe.learning_rate


def _build(recipe: Recipe, place: Place) -> Assembly:
    seed_everything(place.seed + place.gang.rank)
    assembly = assemble(
        recipe.model(),
        place.gang,
        place.options,
        recipe.mixed_precision,
        recipe.dilated,
        recipe.launch_bound,
        recipe.optimizer,
        recipe.loss,
    )
    if place.checkpoint:
        checkpoints.restore(place.checkpoint, assembly.training, assembly.model, place.gang)
    return assembly


def _begin(recipe: Recipe, place: Place, how_long: Length, assembly: Assembly, write: Write, report: Report) -> None:
    """The first event, and the first lines for people."""
    gang, options, ddp = place.gang, place.options, assembly.ddp
    precision = assembly.training.precision.name
    rate = _rate(recipe, place)(place.first_epoch, recipe.steps_per_pass - 1)
    write(
        RunStart(
            program=recipe.program,
            argv=sys.argv[1:],
            model=recipe.model_name,
            classes=recipe.classes,
            parameters=sum(parameter.numel() for parameter in assembly.model.parameters()),
            ddp=ddp.name,
            precision=precision,
            loader=options.loader,
            seed=place.seed,
            batch_per_gpu=recipe.batch_per_gpu,
            global_batch=recipe.batch_per_gpu * gang.world_size,
            num_workers=place.workers,
            learning_rate=rate,
            length=(Length(epochs=recipe.epochs) if how_long.epochs else how_long).as_dict(),
            dataset=recipe.dataset(),
            first_epoch=place.first_epoch,
            binding=place.binding.reason,
            step=assembly.how,
            **facts.place(gang, ddp.name),
        )
    )
    report.say(
        f"{recipe.model_name}: {gang.world_size} x batch {recipe.batch_per_gpu} on {facts.device_name(gang.device)}, "
        f"{precision}, DDP {ddp.name} ({ddp.reason}), backend {gang.backend or 'none'}, lr {rate:g}, "
        f"seed {place.seed}, for {how_long}"
    )
    report.say(f"step: {assembly.how}")
    for note in recipe.notes():
        report.say(note)
    report.say(f"cores: {place.binding.reason}; loader {options.loader} with {place.workers} workers")
    if place.checkpoint:
        report.say(f"weights: {place.checkpoint.path}, after {place.first_epoch} epochs")
        then, now = place.checkpoint.global_batch, recipe.batch_per_gpu * gang.world_size
        if then != now:
            report.say(f"the checkpoint's global batch was {then} images and this run's is {now}: its batches differ")
    report.log("PARAMETER", recipe.parameters(precision))


@dataclass(frozen=True)
class _AfterEpoch:
    """Validation where it is due, and a checkpoint where they are wanted."""

    recipe: Recipe
    place: Place
    evaluate: Callable[[Assembly, int, Write, Report], None] | None
    write: Write
    report: Report

    @classmethod
    def prepare(cls, recipe: Recipe, place: Place, how_long: Length, write: Write, report: Report) -> _AfterEpoch:
        """Finds out before hours of training whether what is due later can be done. Raises UserError."""
        if place.save:
            checkpoints.check_folder(place.save, place.gang, place.first_epoch)
        epochs = range(place.first_epoch, place.first_epoch + (how_long.epochs or 0))
        return cls(recipe, place, recipe.evaluation(epochs), write, report)

    def __call__(self, assembly: Assembly, epoch: int) -> bool:
        """Tells whether anything was done."""
        evaluate = self.evaluate if self.recipe.is_due(epoch) else None
        if evaluate:
            evaluate(assembly, epoch, self.write, self.report)
        if self.place.save:
            self._save(self.place.save, assembly, epoch + 1)
        return evaluate is not None or self.place.save is not None

    def _save(self, folder: Path, assembly: Assembly, epochs: int) -> None:
        recipe, place = self.recipe, self.place
        before = place.checkpoint.step if place.checkpoint else 0
        saved = checkpoints.save(
            folder,
            assembly.training,
            assembly.model,
            place.gang,
            program=recipe.program,
            model_name=recipe.model_name,
            epoch=epochs,
            step=before + (epochs - place.first_epoch) * recipe.steps_per_pass,
            seed=place.seed,
            global_batch=recipe.batch_per_gpu * place.gang.world_size,
            classes=recipe.classes,
        )
        self.write(saved)
        self.report.say(f"saved {saved.path}, {saved.bytes / 1e6:.1f} MB in {saved.seconds:.1f} s")
