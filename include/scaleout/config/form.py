"""The trigger form, and the presets that fill what it leaves open."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt, field_validator, model_validator

from scaleout.config.inflation import DatasetFactor
from scaleout.config.model import Model, RemotePath, validated
from scaleout.config.workload import Launcher
from training.wire.names import CacheMode


class Length(Model):
    """How long a trial is: exactly one of steps, seconds, epochs."""

    steps: PositiveInt | None = None
    seconds: PositiveFloat | None = None
    epochs: PositiveInt | None = None

    @model_validator(mode="after")
    def _exactly_one(self) -> Length:
        if len(self.model_dump(exclude_none=True)) != 1:
            raise ValueError("give exactly one of steps, seconds, epochs")
        return self


def length_text(length: Length) -> str:
    """`6 steps`, `300 s` or `20 epochs`."""
    if length.steps is not None:
        return f"{length.steps} steps"
    if length.seconds is not None:
        return f"{length.seconds:g} s"
    return f"{length.epochs} epochs"


class Choices(Model):
    """What a form or a preset may say. Null: not said here."""

    workloads: Annotated[list[str], Field(min_length=1)] | None = None
    nodes: Annotated[list[PositiveInt], Field(min_length=1)] | None = None
    rounds: PositiveInt | None = None
    cache_modes: Annotated[list[CacheMode], Field(min_length=1)] | None = None
    length: Length | None = None
    launcher: Launcher | None = None
    batch_per_gpu: PositiveInt | None = None
    processes_per_node: PositiveInt | None = None
    num_workers: PositiveInt | None = None
    window_steps: PositiveInt | None = None
    warmup_steps: PositiveInt | None = None
    synthetic_steps: PositiveInt | None = None
    seed: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    dataset_factor: DatasetFactor = None
    budget_h: PositiveFloat | None = None

    @field_validator("workloads", "nodes", "cache_modes")
    @classmethod
    def _no_repeats(cls, values: list[Any] | None) -> list[Any] | None:
        for value in values or []:
            if values and values.count(value) > 1:
                raise ValueError(f"{value!r} is asked for more than once; `rounds` repeats trials")
        return values


class Preset(Choices):
    """A named set of choices. Source: `presets/<name>.yaml`."""

    description: str


class Form(Choices):
    """What is typed into the trigger form or given to `airflow dags test -c`."""

    preset: str = "quick"
    cityscapes: RemotePath | None = None

    @classmethod
    def of(cls, conf: dict[str, Any]) -> Form:
        """Validates the raw conf of a DAG run. Raises ConfigError."""
        return validated(cls, conf, lambda _: "trigger form")


class NightlyForm(Form):
    """The form that every scheduled sweep is given."""

    preset: str = "nightly"
