"""SSD trained, or the training benchmarked."""

from __future__ import annotations

from training.common import training
from training.common.binding import Binding
from training.common.checkpoint import check, load
from training.common.program import Write
from training.common.report import Report
from training.ssd.annotations import open_annotations
from training.ssd.args import Options, length
from training.ssd.dataset import Layout
from training.ssd.recipe import PROGRAM, SsdRecipe, model_name


def train(options: Options, binding: Binding, write: Write) -> None:
    """Runs what `options` describe, on this rank. Raises TrainingError."""
    recipe = prepare(options, binding)
    warmup = options.benchmark_warmup if options.mode == "benchmark-training" else None
    training.train(recipe, recipe.place, length(options, recipe.place.first_epoch), write, warmup)


def prepare(options: Options, binding: Binding) -> SsdRecipe:
    """Opens annotations and checkpoint, which no other rank need wait for, then joins the gang. Raises UserError."""
    layout = Layout(options.data)
    layout.check()
    annotations = open_annotations(layout.annotations, Report(options.common.local_rank, 1).say)
    checkpoint = load(options.checkpoint) if options.checkpoint else None
    if checkpoint:
        check(checkpoint, PROGRAM, model_name(options), annotations.classes)
    place = training.Place.take(options.common, binding, checkpoint, options.seed, options.num_workers, options.save)
    return SsdRecipe.prepare(options, place, layout, annotations)
