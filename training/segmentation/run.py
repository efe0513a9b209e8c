"""DeepLabV3+ trained, or its mIoU measured."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from training.common import facts, training
from training.common.assembly import memory_layout
from training.common.binding import Binding
from training.common.checkpoint import Checkpoint, check, load
from training.common.errors import UserError
from training.common.gang import Gang
from training.common.inference import start_event
from training.common.precision import Precision
from training.common.program import Write
from training.common.report import Report
from training.segmentation.args import Options, length, root
from training.segmentation.centroids import open_centroids
from training.segmentation.dataset import SegmentationSet, has_split, total_bytes
from training.segmentation.deepv3 import build
from training.segmentation.evaluate import evaluate
from training.segmentation.labels import CLASS_NAMES
from training.segmentation.recipe import PROGRAM, SegmentationRecipe, pairs
from training.segmentation.results import tell


def train(options: Options, binding: Binding, write: Write) -> None:
    """Runs what `options` describe, on this rank. Raises TrainingError."""
    recipe = prepare(options, binding)
    training.train(recipe, recipe.place, length(options, recipe.place.first_epoch), write)


def prepare(options: Options, binding: Binding) -> SegmentationRecipe:
    """Lists the data, makes the node's index of classes and loads a checkpoint, for none of which another rank need wait;
    then joins the gang. Raises UserError."""
    say = Report(options.common.local_rank, 1).say
    data = SegmentationSet.open(root(options), "train", options.cv, say)
    validation = _validation(options, say)
    centroids = open_centroids(data, options.uniform_tile, say) if options.uniform_share else None
    place = training.Place.take(
        options.common, binding, _loaded(options.resume, options), options.seed, options.num_workers, options.result_dir
    )
    image_bytes, label_bytes = total_bytes(data, place.gang)
    ranks = place.gang.world_size
    if len(data) < ranks:
        raise UserError(f"{len(data)} training images cannot be shared by {ranks} ranks; each needs at least one")
    steps = math.ceil(len(data) / (ranks * options.batch_per_gpu))
    return SegmentationRecipe(
        options=options,
        place=place,
        data=data,
        centroids=centroids,
        validation=validation,
        image_bytes=image_bytes,
        label_bytes=label_bytes,
        steps_per_pass=steps,
        snapshot=_loaded(options.snapshot, options),
    )


def validate(options: Options, binding: Binding, write: Write) -> None:
    """`--mode evaluation`, on this rank. Raises TrainingError."""
    common = options.common
    data = SegmentationSet.open(root(options), "val", options.cv, Report(common.local_rank, 1).say)
    checkpoint = _loaded(options.snapshot or options.resume, options)
    assert checkpoint is not None
    gang = Gang.join(common.local_rank, common.cuda, common.backend)
    precision = Precision.choose(
        common.precision, options.mixed_precision, common.allow_tf32, gang.device, dilated=True
    )
    layout = memory_layout(common.data_layout, gang.device)
    model = build(options.arch, len(CLASS_NAMES), None)
    model.load_state_dict(checkpoint.model)
    model = model.to(gang.device, memory_format=layout)
    workers = facts.useful_workers(options.num_workers, gang.device)
    write(
        start_event(
            program=PROGRAM,
            model_name=options.arch,
            model=model,
            classes=list(CLASS_NAMES),
            gang=gang,
            precision=precision.name,
            seed=checkpoint.seed,
            batch=options.eval_batch,
            workers=workers,
            epochs=checkpoint.epoch,
            binding=binding.reason,
        )
    )
    with Report(gang.rank, gang.world_size, common.json_summary) as report:
        report.say(f"{options.arch}: evaluation on {len(data)} images of {data.root}, {precision.name}")
        report.say(f"weights: {checkpoint.path}, after {checkpoint.epoch} epochs")
        result = evaluate(
            model,
            pairs(data),
            gang,
            options.eval_batch,
            workers,
            precision.autocast,
            layout,
            options.save_predictions,
        )
        tell(result, max(checkpoint.epoch - 1, 0), write, report)
    gang.leave()


def _loaded(path: Path | None, options: Options) -> Checkpoint | None:
    if path is None:
        return None
    found = load(path)
    check(found, PROGRAM, options.arch, list(CLASS_NAMES))
    return found


def _validation(options: Options, say: Callable[[str], None]) -> SegmentationSet | None:
    """The val split where there is one, and the training is long enough to come to it."""
    if options.common.steps is not None or options.common.seconds is not None or not has_split(root(options), "val"):
        return None
    return SegmentationSet.open(root(options), "val", options.cv, say)
