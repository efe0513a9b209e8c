"""One training step, and the state that a warm-up must leave untouched."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.common.life import beat
from training.common.precision import Precision

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Training:
    """What a step changes. `loss` maps a batch's tensors to a scalar; it runs the (wrapped) model under autocast."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    precision: Precision
    loss: Callable[[Inputs], Tensor]

    def set_learning_rate(self, rate: float) -> None:
        """The rate of all parameter groups, from the next step on."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def step(self, inputs: Inputs) -> Tensor:
        """Forward, backward, update. The loss stays on the device, so the host need not wait for it."""
        beat()  # here: of a gang that hangs, the rank that never came this far is the oldest
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision.autocast():
            loss = self.loss(inputs)
        scaler = self.precision.scaler
        scaler.scale(loss).backward()
        scaler.step(self.optimizer)
        scaler.update()
        return loss.detach()


class Snapshot:
    """Weights, buffers, optimiser, loss scale and random states, to be put back exactly."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._model = copy.deepcopy(training.model.state_dict())
        self._optimizer: dict[str, Any] = copy.deepcopy(training.optimizer.state_dict())
        self._scaler = training.precision.scaler.state_dict()
        self._random = random.getstate(), np.random.get_state(), torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state() if training.precision.device.type == "cuda" else None

    def restore(self) -> None:
        """Puts everything back and drops the gradients."""
        training = self._training
        training.model.load_state_dict(self._model)
        training.optimizer.load_state_dict(self._optimizer)
        training.optimizer.zero_grad(set_to_none=True)
        training.precision.scaler.load_state_dict(self._scaler)
        python, numpy, torch_cpu = self._random
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torch_cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)
