"""One training step, and the state that a warm-up must leave untouched."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from training.common.graph import StepGraph
from training.common.life import beat
from training.common.precision import Precision

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Training:
    """What a step changes. `loss` maps a batch's tensors to a scalar; it runs the (wrapped) model under autocast.

    `graph` is there where a step shall be one; `capture` makes it. `own_graphs`: torch.compile makes some of its own.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    precision: Precision
    loss: Callable[[Inputs], Tensor]
    graph: StepGraph | None = None
    own_graphs: bool = False

    def set_learning_rate(self, rate: float) -> None:
        """The rate of all parameter groups, from the next step on."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def capture(self, inputs: Inputs) -> None:
        """From now on a step is one graph, where it shall be. Makes some steps. Raises TrainingError."""
        if self.graph is None:
            return
        for group in self.optimizer.param_groups:
            group["lr"] = torch.tensor(float(group["lr"]), device=self.precision.device)
        self.graph.capture(self._step, inputs)

    def release(self) -> None:
        """After the last step, before the group is left."""
        if self.graph is not None:
            self.graph.release()

    def step(self, inputs: Inputs) -> Tensor:
        """Forward, backward, update. The loss stays on the device, so the host need not wait for it.

        It is to be read or copied before the next step, which overwrites it where torch.compile makes graphs of its own.
        """
        beat()  # here: of a gang that hangs, the rank that never came this far is the oldest
        return self.graph.replay(inputs) if self.graph and self.graph.captured else self._step(inputs)

    def _step(self, inputs: Inputs) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        with self.precision.autocast():
            loss = self.loss(inputs)
        scaler = self.precision.scaler
        scaler.scale(loss).backward()
        scaler.step(self.optimizer)
        scaler.update()
        return loss.detach()


class Snapshot:
    """Weights, buffers, optimiser, loss scale and random states, to be put back exactly, each in its place."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._model = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
        self._rates = [float(group["lr"]) for group in training.optimizer.param_groups]
        self._optimizer = {
            parameter: {name: value.clone() for name, value in state.items() if isinstance(value, Tensor)}
            for parameter, state in training.optimizer.state.items()
        }
        self._scaler = training.precision.scaler.state_dict()
        self._random = random.getstate(), np.random.get_state(), torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state() if training.precision.device.type == "cuda" else None

    def restore(self) -> None:
        """Puts everything back and drops the gradients."""
        training = self._training
        training.model.load_state_dict(self._model)
        self._restore_optimizer(training.optimizer)
        training.optimizer.zero_grad(set_to_none=True)
        training.precision.scaler.load_state_dict(self._scaler)
        python, numpy, torch_cpu = self._random
        random.setstate(python)
        np.random.set_state(numpy)
        torch.set_rng_state(torch_cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)

    def _restore_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        for group, rate in zip(optimizer.param_groups, self._rates, strict=True):
            group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
        for parameter, state in optimizer.state.items():
            before = self._optimizer.get(parameter, {})
            for name, value in state.items():
                if isinstance(value, Tensor):  # of 0 where there was none: so do these optimisers begin
                    value.copy_(before[name]) if name in before else value.zero_()
