"""The learning rate's factor as a function of the epoch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from training.common.errors import UserError

SCHEDULES = ("poly", "poly2", "scl-poly")  # the reference's --lr_schedule

POLY_STEP_REASON = "--poly_step is ignored: poly, the one schedule implemented here, has no step"


def schedule(name: str, max_epoch: int, poly_exp: float) -> Callable[[int], float]:
    """The function from epoch (from 0) to factor that `name` stands for, as LambdaLR takes one.

    Raises UserError for a schedule that only the reference program has, and for an unknown one.
    """
    if name == "poly":
        return partial(poly, max_epoch=max_epoch, poly_exp=poly_exp)
    if name in SCHEDULES:
        raise UserError(f"--lr_schedule {name} is not implemented here; poly is")
    raise UserError(f"--lr_schedule {name} is not known; use poly")


def poly(epoch: int, max_epoch: int, poly_exp: float) -> float:
    """(1 - epoch / max_epoch) ** poly_exp (DeepLab, Chen et al. 2016, section 4.1, per epoch instead of iteration).

    It is 0 from `max_epoch` on: a trial that is bounded by steps or seconds may train longer.
    """
    return max(0.0, 1 - epoch / max_epoch) ** poly_exp


def poly_step_note(poly_step: int | None) -> str | None:
    """Why --poly_step changes nothing, for the log; None where it was not given."""
    return None if poly_step is None else POLY_STEP_REASON
