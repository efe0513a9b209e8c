"""How a workload's data set is made larger than Cityscapes, and how much of that a sweep wants."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt

from scaleout.config.model import Model, Program

Published = Literal["published"]
PUBLISHED: Published = "published"


def _factor(value: Any) -> Any:
    """The form of the UI gives a number as text."""
    if isinstance(value, str) and re.fullmatch(r"[1-9][0-9]*", value):
        return int(value)
    if value is None or value == PUBLISHED or (type(value) is int and value >= 1):
        return value
    raise ValueError(f"{value!r} is neither a whole number from 1 on nor {PUBLISHED!r}")


DatasetFactor = Annotated[
    int | Published | None,
    BeforeValidator(_factor),
    Field(description="times that each frame of Cityscapes is in the data set; 1: the frames themselves"),
]


class Inflation(Model):
    """`program`, relative to `training/`, makes every frame into `factor` images: itself and seeded variants of it.

    `mean_mb` is the size of an image with its label that PNG variants are brought to, in MB; copies keep their size, and JPEG
    has its own. `copy` repeats the frames instead of augmenting them: a test of the storage alone. The rate is of one core,
    and only estimates hours.
    """

    program: Program
    factor: PositiveInt
    mean_mb: PositiveFloat
    method: Literal["augment", "copy"] = "augment"
    format: Literal["png", "jpeg"] = "png"
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    expected_images_per_s_per_core: PositiveFloat

    @property
    def has_mean_size(self) -> bool:
        """Whether its images are brought to `mean_mb`."""
        return (self.method, self.format) == ("augment", "png")
