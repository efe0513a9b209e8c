"""How long a trial is: steps, seconds or epochs."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Length:
    """Exactly one of the three is set."""

    steps: int | None = None
    seconds: float | None = None
    epochs: int | None = None

    @classmethod
    def choose(cls, steps: int | None, seconds: float | None, epochs: int) -> Length:
        """`steps` or `seconds` where given, else `epochs`."""
        if steps is not None:
            return cls(steps=steps)
        if seconds is not None:
            return cls(seconds=seconds)
        return cls(epochs=epochs)

    def as_dict(self) -> dict[str, float]:
        """`{"steps": 100.0}`: as the event log has it."""
        return {name: float(value) for name, value in vars(self).items() if value is not None}

    def total_steps(self, steps_per_pass: int) -> int | None:
        """All steps of the trial, None where its length is in seconds."""
        if self.steps is not None:
            return self.steps
        return None if self.epochs is None else self.epochs * steps_per_pass

    def steps_left(self, steps_done: int, seconds_done: float, steps_per_pass: int) -> int:
        """Steps still to run; 0 ends the trial.

        Under `seconds` it is an estimate from the steps done, at least 1 while time is left, and 1 before the first:
        how fast synthetic batches go says little of a storage that starves the ranks.
        """
        if self.seconds is None:
            return max(0, (self.total_steps(steps_per_pass) or 0) - steps_done)
        left_s = self.seconds - seconds_done
        if left_s <= 0:
            return 0
        return max(1, math.floor(left_s * steps_done / seconds_done)) if steps_done else 1

    def __str__(self) -> str:
        ((name, value),) = ((n, v) for n, v in vars(self).items() if v is not None)
        return f"{value:g} {name}"
