"""What a trial is about, before anything is built: the data it reads and this rank's place; and how a log begins."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass

from torch import nn

from training.common import facts
from training.common.console import Console
from training.common.gang import Gang
from training.ssd.annotations import Annotations, read_annotations
from training.ssd.args import Options
from training.ssd.dataset import SHARDING, Layout, steps_per_pass, total_image_bytes
from training.wire.events import Dataset, RunStart

PROGRAM = "ssd"
MODEL = "ssd300-resnet50"


@dataclass(frozen=True)
class Trial:
    """The same on every rank but for `gang` and `threads` (of DALI, per process). `image_bytes` is of all images."""

    options: Options
    gang: Gang
    layout: Layout
    annotations: Annotations
    image_bytes: int
    seed: int
    threads: int
    steps_per_pass: int

    @classmethod
    def open(cls, options: Options) -> Trial:
        """Checks the folder, joins the gang, reads the annotations once for all ranks. Raises UserError."""
        layout, measurement = Layout(options.data), options.measurement
        layout.check()
        gang = Gang.join(measurement.local_rank, measurement.cuda, measurement.backend)
        annotations = gang.share(lambda: read_annotations(layout.annotations))
        return cls(
            options=options,
            gang=gang,
            layout=layout,
            annotations=annotations,
            image_bytes=total_image_bytes(layout, annotations, gang),
            seed=gang.share(lambda: random.randrange(10_000) if options.seed is None else options.seed),
            threads=_threads(options.num_workers, gang),
            steps_per_pass=steps_per_pass(len(annotations.file_names), gang.world_size, options.batch_per_gpu),
        )

    @property
    def classes(self) -> int:
        """The categories of the annotation file and the background."""
        return len(self.annotations.classes) + 1

    @property
    def learning_rate(self) -> float:
        """The reference program's rule: the rate asked for is for 32 images a step. 0 for synthetic batches.

        Those measure compute, and what they teach would end the trial: fp16 scores overflow after about 40 steps.
        """
        if self.options.loader == "synthetic":
            return 0.0
        return self.options.learning_rate * self.gang.world_size * self.options.batch_per_gpu / 32

    def run_start(self, model: nn.Module, ddp: str, precision: str) -> RunStart:
        """The first event of the log."""
        batch = self.options.batch_per_gpu
        return RunStart(
            program=PROGRAM,
            argv=sys.argv[1:],
            model=MODEL,
            classes=self.annotations.classes,
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            ddp=ddp,
            precision=precision,
            loader=self.options.loader,
            seed=self.seed,
            batch_per_gpu=batch,
            global_batch=batch * self.gang.world_size,
            num_workers=self.threads,
            learning_rate=self.learning_rate,
            length=self.options.length.as_dict(),
            dataset=self._dataset(),
            **facts.place(self.gang),
        )

    def say(self, console: Console, ddp: str, precision: str) -> None:
        """The log's first lines for people."""
        options, gang, annotations = self.options, self.gang, self.annotations
        console.say(
            f"{MODEL}: {gang.world_size} x batch {options.batch_per_gpu} on {facts.device_name(gang.device)}, "
            f"{precision}, DDP {ddp}, backend {gang.backend or 'none'}, lr {self.learning_rate:g}, seed {self.seed}, "
            f"for {options.length}"
        )
        console.say(
            f"data: {len(annotations.file_names)} images with boxes, {self.image_bytes / 1e6:.1f} MB, in "
            f"{self.layout.root}; {len(annotations.without_box)} images without a box are skipped; "
            f"{self.steps_per_pass} steps a pass; classes: {', '.join(annotations.classes)}; loader {options.loader}"
        )
        if options.num_workers != self.threads:
            console.say(
                f"--num-workers {options.num_workers}: this process may use {self.threads} cores, so as many threads"
            )
        weights = (
            f"weights from {options.backbone_path}" if options.backbone_path else "random weights (no --backbone-path)"
        )
        console.say(f"backbone: {weights}")

    def _dataset(self) -> Dataset:
        images = len(self.annotations.file_names)
        return Dataset(
            root=str(self.layout.root),
            images=images,
            image_bytes=self.image_bytes,
            label_bytes=0,
            mean_image_bytes=self.image_bytes / images,
            manifest_sha256=self.layout.manifest_sha256(),
            shard_images=self.steps_per_pass * self.options.batch_per_gpu,
            sharding=SHARDING,
        )


def _threads(asked: int, gang: Gang) -> int:
    """On CPU the decoding threads share the cores with the model, so more than there are only get in its way."""
    return asked if gang.device.type == "cuda" else min(asked, len(facts.affinity()))
