"""SSD300 as a recipe: COCO boxes, SSD's loss, the reference program's rates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.common.assembly import Assembly
from training.common.input import open_loader
from training.common.loader import Loader
from training.common.optimizer import sgd
from training.common.program import Write
from training.common.report import Report
from training.common.sampler import SHARDING, Sampler
from training.common.step import Inputs
from training.common.training import Place
from training.data.manifest import manifest_sha256
from training.ssd.annotations import Annotations
from training.ssd.args import Options, learning_rate
from training.ssd.boxes import default_boxes
from training.ssd.dataset import Layout, steps_per_pass, total_image_bytes
from training.ssd.evaluate import ValidationSet, evaluate
from training.ssd.loss import ssd_loss
from training.ssd.model import SSD300, parameter_groups
from training.ssd.planner import Planner
from training.ssd.results import tell
from training.ssd.synthetic import synthetic_inputs
from training.wire.events import Dataset

PROGRAM = "ssd"


def model_name(options: Options) -> str:
    """`ssd300-resnet50`."""
    return f"ssd300-{options.backbone}"


@dataclass(frozen=True)
class SsdRecipe:
    """See Recipe. `image_bytes` is of all images that have a box."""

    options: Options
    place: Place
    layout: Layout
    annotations: Annotations
    image_bytes: int
    steps_per_pass: int
    program: str = PROGRAM
    dilated: bool = False
    launch_bound: bool = True

    @classmethod
    def prepare(cls, options: Options, place: Place, layout: Layout, annotations: Annotations) -> SsdRecipe:
        """Raises UserError."""
        image_bytes = total_image_bytes(layout, annotations, place.gang)
        steps = steps_per_pass(len(annotations), place.gang.world_size, options.batch_per_gpu)
        return cls(options, place, layout, annotations, image_bytes, steps)

    @property
    def model_name(self) -> str:
        return model_name(self.options)

    @property
    def classes(self) -> list[str]:
        return self.annotations.classes

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
        return self.annotations.name(0).lower().endswith((".jpg", ".jpeg"))

    def dataset(self) -> Dataset:
        images = len(self.annotations)
        return Dataset(
            root=str(self.layout.root),
            images=images,
            image_bytes=self.image_bytes,
            label_bytes=0,
            mean_image_bytes=self.image_bytes / images,
            manifest_sha256=manifest_sha256(self.layout.root),
            shard_images=self.steps_per_pass * self.batch_per_gpu,
            sharding=SHARDING,
        )

    def model(self) -> nn.Module:
        weights = None if self.place.checkpoint else self.options.backbone_path
        return SSD300(len(self.classes) + 1, self.options.backbone, weights)

    def optimizer(self, model: nn.Module, fused: bool) -> torch.optim.Optimizer:
        groups = parameter_groups(model, self.options.weight_decay)
        return sgd(groups, self.learning_rate(self.place.first_epoch, 0), self.options.momentum, fused=fused)

    def loss(self, model: nn.Module, inputs: Inputs) -> Tensor:
        images, target_offsets, target_labels = inputs
        offsets, scores = model(images)
        return ssd_loss(offsets, scores, target_offsets, target_labels)

    def learning_rate(self, epoch: int, step: int) -> float:
        global_batch = self.batch_per_gpu * self.place.gang.world_size
        return learning_rate(self.options, global_batch, self.steps_per_pass, epoch, step)

    def synthetic_inputs(self) -> Inputs:
        return synthetic_inputs(self.batch_per_gpu, len(self.classes) + 1, len(default_boxes()), self.place.gang.device)

    def loader(self, synthetic: Inputs) -> Loader:
        place, antialias = self.place, self.options.common.antialias
        sampler = Sampler(
            len(self.annotations),
            place.gang.rank,
            place.gang.world_size,
            self.batch_per_gpu,
            place.seed,
            machine_ranks=place.gang.machine_ranks,
        )

        def torch_load() -> object:
            from training.ssd.torch_input import TorchInput

            return TorchInput(antialias)

        def dali_graph() -> object:
            from training.ssd.pipeline import graph

            return graph(place.gang.device, antialias, self.jpeg)

        planner = Planner(self.layout.images, self.annotations)
        return open_loader(place, sampler, planner, synthetic, torch_load, dali_graph)

    def notes(self) -> list[str]:
        annotations, backbone = self.annotations, self.options.backbone_path
        lines = [
            f"data: {len(annotations)} images with boxes, {self.image_bytes / 1e6:.1f} MB, in {self.layout.root}; "
            f"{annotations.images_without_box} images without a box are skipped; {self.steps_per_pass} steps a pass; "
            f"classes: {', '.join(self.classes)}"
        ]
        if not self.place.checkpoint:
            lines.append(f"weights: backbone {f'from {backbone}' if backbone else 'random (no --backbone-path)'}")
        return lines

    def parameters(self, precision: str) -> dict[str, object]:
        """Under the names that the reference program logs."""
        options = self.options
        return {
            "dataset path": str(options.data),
            "epochs": options.epochs,
            "batch size": options.batch_per_gpu,
            "eval batch size": options.eval_batch,
            "no cuda": self.place.gang.device.type == "cpu",
            "seed": self.place.seed,
            "checkpoint path": str(options.checkpoint) if options.checkpoint else None,
            "mode": options.mode,
            "eval on epochs": list(options.evaluation),
            "lr decay epochs": list(options.milestones),
            "learning rate": options.learning_rate,
            "momentum": options.momentum,
            "weight decay": options.weight_decay,
            "lr warmup": options.warmup,
            "backbone": options.backbone,
            "backbone path": str(options.backbone_path) if options.backbone_path else None,
            "num workers": options.num_workers,
            "AMP": precision in ("fp16", "bf16"),
            "precision": precision,
        }

    def is_due(self, epoch: int) -> bool:
        return epoch in self.options.evaluation

    def evaluation(self, epochs: range) -> Callable[[Assembly, int, Write, Report], None] | None:
        if not any(map(self.is_due, epochs)):
            return None
        validation = ValidationSet.open(self.options.data, self.place.gang)

        def run(assembly: Assembly, epoch: int, write: Write, report: Report) -> None:
            result = evaluate(
                assembly.model,
                validation,
                self.classes,
                self.place.gang,
                self.options.eval_batch,
                self.place.workers,
                assembly.training.precision.autocast,
                assembly.layout,
            )
            tell(result, epoch, write, report)

        return run
