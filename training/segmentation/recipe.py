"""DeepLabV3+ as a recipe: Cityscapes' pairs of image and mask, cross entropy, the reference program's rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from training.common.assembly import Assembly
from training.common.checkpoint import Checkpoint
from training.common.errors import UserError
from training.common.input import open_loader
from training.common.loader import Loader
from training.common.optimizer import sgd
from training.common.program import Write
from training.common.report import Report
from training.common.sampler import SHARDING, Sampler
from training.common.step import Inputs
from training.common.training import Place
from training.data.manifest import manifest_sha256
from training.segmentation.args import Options
from training.segmentation.augment import Ranges
from training.segmentation.centroids import Centroids
from training.segmentation.dataset import SegmentationSet
from training.segmentation.deepv3 import build
from training.segmentation.evaluate import evaluate
from training.segmentation.labels import CLASS_NAMES
from training.segmentation.loss import segmentation_loss
from training.segmentation.planner import Planner
from training.segmentation.results import tell
from training.segmentation.schedule import factor
from training.segmentation.synthetic import synthetic_inputs
from training.wire.events import Dataset

PROGRAM = "segmentation"


@dataclass(frozen=True)
class Pair:
    """A validation image and its mask."""

    image: Path
    mask: Path


def pairs(data: SegmentationSet) -> list[Pair]:
    """All of a split, in its order."""
    return [Pair(data.image(index), data.mask(index)) for index in range(len(data))]


@dataclass(frozen=True)
class SegmentationRecipe:
    """See Recipe. `centroids` None: every image once an epoch. `validation` None: there is none to be had."""

    options: Options
    place: Place
    data: SegmentationSet
    centroids: Centroids | None
    validation: SegmentationSet | None
    image_bytes: int
    label_bytes: int
    steps_per_pass: int
    snapshot: Checkpoint | None
    program: str = PROGRAM
    dilated: bool = True
    launch_bound: bool = False

    @property
    def model_name(self) -> str:
        return self.options.arch

    @property
    def classes(self) -> list[str]:
        return list(CLASS_NAMES)

    @property
    def batch_per_gpu(self) -> int:
        return self.options.batch_per_gpu

    @property
    def epochs(self) -> int:
        return self.options.epochs

    @property
    def mixed_precision(self) -> bool:
        return self.options.mixed_precision

    @property
    def jpeg(self) -> bool:
        return self.data.listing.has_jpeg

    def dataset(self) -> Dataset:
        images = len(self.data)
        return Dataset(
            root=str(self.data.root),
            images=images,
            image_bytes=self.image_bytes,
            label_bytes=self.label_bytes,
            mean_image_bytes=(self.image_bytes + self.label_bytes) / images,
            manifest_sha256=manifest_sha256(self.data.root),
            shard_images=self.steps_per_pass * self.batch_per_gpu,
            sharding=self._sharding(),
        )

    def model(self) -> nn.Module:
        """SyncBatchNorm exists for GPUs only. Raises UserError."""
        weights = None if self.place.checkpoint else self.options.trunk_weights
        model: nn.Module = build(self.options.arch, len(CLASS_NAMES), weights)
        if self.snapshot:
            model.load_state_dict(self.snapshot.model)
        if not self.options.syncbn:
            return model
        if self.place.gang.device.type == "cpu":
            raise UserError("--syncbn needs GPUs; on the CPU leave it out")
        return nn.SyncBatchNorm.convert_sync_batchnorm(model) if self.place.gang.backend else model

    def optimizer(self, model: nn.Module, fused: bool) -> torch.optim.Optimizer:
        options = self.options
        if options.optimizer == "sgd":
            groups = [{"params": list(model.parameters()), "weight_decay": options.weight_decay}]
            return sgd(groups, options.learning_rate, options.momentum, fused=fused)
        if options.optimizer == "adam":
            return torch.optim.Adam(
                model.parameters(), options.learning_rate, weight_decay=options.weight_decay, fused=fused
            )
        return torch.optim.RAdam(model.parameters(), options.learning_rate, weight_decay=options.weight_decay)

    def loss(self, model: nn.Module, inputs: Inputs) -> Tensor:
        images, targets = inputs
        return segmentation_loss(model(images), targets)

    def learning_rate(self, epoch: int, step: int) -> float:  # noqa: ARG002
        return self.options.learning_rate * factor(self.options, epoch)

    def synthetic_inputs(self) -> Inputs:
        return synthetic_inputs(self.batch_per_gpu, self.options.crop, len(CLASS_NAMES), self.place.gang.device)

    def loader(self, synthetic: Inputs) -> Loader:
        options, place = self.options, self.place
        antialias = options.common.antialias
        draw = self._draw if self.centroids else None
        gang = place.gang
        sampler = Sampler(
            len(self.data), gang.rank, gang.world_size, self.batch_per_gpu, place.seed, draw, gang.machine_ranks
        )
        ranges = Ranges(options.crop, options.scale_min, options.scale_max, options.color_aug)

        def torch_load() -> object:
            from training.segmentation.torch_input import TorchInput

            return TorchInput(options.crop, antialias)

        def dali_graph() -> object:
            from training.segmentation.pipeline import graph

            return graph(gang.device, options.crop, antialias, self.jpeg)

        planner = Planner(self.data, self.centroids, ranges)
        return open_loader(place, sampler, planner, synthetic, torch_load, dali_graph)

    def notes(self) -> list[str]:
        options, height_width = self.options, "x".join(map(str, self.options.crop))
        lines = [
            f"data: {len(self.data)} pairs, {self.image_bytes / 1e6:.1f} MB of images and {self.label_bytes / 1e6:.1f} MB "
            f"of masks, in {self.data.root}; {self.steps_per_pass} steps a pass; crops of {height_width} px; "
            f"{self._sharding()}"
        ]
        if not self.place.checkpoint:
            trunk = options.trunk_weights
            source = f"trunk from {trunk}" if trunk else "random (no --trunk_weights): it trains from scratch"
            lines.append(f"weights: {self.snapshot.path if self.snapshot else source}")
        if self.validation is None and options.common.steps is None and options.common.seconds is None:
            lines.append("validation: none, the data has no val split")
        lines.append(f"checkpoints: {f'after every epoch, in {self.place.save}' if self.place.save else 'none'}")
        return lines

    def parameters(self, precision: str) -> dict[str, object]:
        shown = {name: str(value) if isinstance(value, Path) else value for name, value in vars(self.options).items()}
        return {**{name: value for name, value in shown.items() if name != "common"}, "precision": precision}

    def is_due(self, epoch: int) -> bool:
        return (epoch + 1) % self.options.val_freq == 0

    def evaluation(self, epochs: range) -> Callable[[Assembly, int, Write, Report], None] | None:
        if self.validation is None or not any(map(self.is_due, epochs)):
            return None
        files = pairs(self.validation)

        def run(assembly: Assembly, epoch: int, write: Write, report: Report) -> None:
            result = evaluate(
                assembly.model,
                files,
                self.place.gang,
                self.options.eval_batch,
                self.place.workers,
                assembly.training.precision.autocast,
                assembly.layout,
            )
            tell(result, epoch, write, report)

        return run

    def _draw(self, random: np.random.Generator, epoch: int) -> NDArray[np.int64]:
        assert self.centroids is not None
        if epoch >= self.options.max_cu_epoch:
            return random.permutation(len(self.data))
        return self.centroids.draw(self.options.uniform_share)(random, epoch)

    def _sharding(self) -> str:
        if self.centroids is None:
            return SHARDING
        return (
            f"{100 * self.options.uniform_share:g} % of an epoch class-uniform crops, drawn alike on every rank; "
            "each global batch is cut into one part per rank"
        )
