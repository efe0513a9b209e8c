"""A workload: a training program, the flags it knows things by, and the method's values. Source: `workloads/<name>.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from scaleout.config.model import Model

Launcher = Literal["torchrun", "torch.distributed.launch"]


class Flags(Model):
    """The program's flag for each thing that a sweep sets."""

    data: str
    batch_per_gpu: str
    num_workers: str
    epochs: str
    seed: str | None = None


class Workload(Model):
    """`program` is relative to `training/`. `arguments` are passed as they stand. The rates only estimate hours."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)]
    title: str
    program: Annotated[str, Field(pattern=r"^[a-z_]+/[a-z_]+\.py$")]
    launcher: Launcher = "torchrun"
    flags: Flags
    arguments: list[str] = []
    batch_per_gpu: PositiveInt
    num_workers: PositiveInt
    epochs: PositiveInt
    dataset_images: PositiveInt
    expected_images_per_s_per_rank: dict[Literal["cuda", "cpu"], PositiveFloat]
    start_up_s: PositiveFloat = 60.0
