"""A workload: a training program, the flags it knows things by, and the method's values. Source: `workloads/<name>.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from scaleout.config.inflation import Inflation
from scaleout.config.model import Model, Program, placed

NAME = r"^[a-z][a-z0-9_]*$"
Launcher = Literal["torchrun", "torch.distributed.launch"]
Device = Literal["cuda", "cpu"]
Subfolder = Annotated[str, Field(pattern=r"^[A-Za-z0-9_]+(/[A-Za-z0-9_]+)*$")]


class Flags(Model):
    """The program's flag for each thing that a sweep sets. `no_checkpoints` is of a program that writes them unasked."""

    data: str
    batch_per_gpu: str
    num_workers: str
    epochs: str
    seed: str | None = None
    no_checkpoints: str | None = None


class Workload(Model):
    """`program`, and `prepare` that makes its data set from Cityscapes, are relative to `training/`.

    `arguments` are passed as they stand; `arguments_on_cpu` takes their place on a cluster without GPUs, where the method's
    own cannot run. `read_folders`, of the prepared data set, hold the files that a pass over it reads. `dataset_images` are
    those of the published data set, to whose size `inflation` brings Cityscapes. The rates only estimate hours.
    """

    name: Annotated[str, Field(pattern=NAME, max_length=40)]
    title: str
    program: Program
    prepare: Program = "data/convert.py"
    inflation: Inflation | None = None
    read_folders: Annotated[list[Subfolder], Field(min_length=1)] = ["train2017"]
    launcher: Launcher = "torchrun"
    flags: Flags
    arguments: list[str] = []
    arguments_on_cpu: list[str] | None = None
    batch_per_gpu: PositiveInt
    num_workers: PositiveInt
    epochs: PositiveInt
    dataset_images: PositiveInt
    expected_images_per_s_per_rank: dict[Device, PositiveFloat]
    start_up_s: PositiveFloat = 60.0

    @model_validator(mode="after")
    def _is_a_multiple_of_cityscapes(self) -> Workload:
        if self.inflation and self.dataset_images % self.inflation.factor:
            raise placed(
                f"{self.dataset_images} is no multiple of inflation.factor, {self.inflation.factor}", "dataset_images"
            )
        return self

    def images(self, factor: int) -> int:
        """The training images of the data set in which each frame of the whole Cityscapes is `factor` times."""
        return self.dataset_images // (self.inflation.factor if self.inflation else 1) * factor

    def arguments_on(self, device: Device) -> list[str]:
        """What is passed on a cluster of such devices."""
        return self.arguments_on_cpu if device == "cpu" and self.arguments_on_cpu is not None else self.arguments
