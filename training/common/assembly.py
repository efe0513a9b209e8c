"""From a model to what trains it: memory layout, DDP, compilation, precision and optimiser, the same for both programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from training.common.args import CommonOptions
from training.common.ddp import Wrapped, wrap
from training.common.gang import Gang
from training.common.precision import Precision
from training.common.step import Inputs, Training


@dataclass(frozen=True)
class Assembly:
    """`model` is the bare one, whose state is saved and which validation calls; `training` steps the wrapped one."""

    model: nn.Module
    training: Training
    layout: torch.memory_format
    wrapped: Wrapped


def memory_layout(asked: str | None, device: torch.device) -> torch.memory_format:
    """Of weights and images. Channels last is what tensor cores want and slower on the CPU, hence the defaults."""
    last = asked == "channels_last" if asked else device.type == "cuda"
    return torch.channels_last if last else torch.contiguous_format


def assemble(
    model: nn.Module,
    gang: Gang,
    options: CommonOptions,
    mixed_precision: bool,
    dilated: bool,
    optimizer: Callable[[nn.Module, bool], torch.optim.Optimizer],
    loss: Callable[[nn.Module, Inputs], Tensor],
) -> Assembly:
    """`optimizer` gets the model and whether it may be fused; `loss` the wrapped model and a batch, images first."""
    device = gang.device
    layout = memory_layout(options.data_layout, device)
    precision = Precision.choose(options.precision, mixed_precision, options.allow_tf32, device, dilated)
    if options.deterministic:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        torch.use_deterministic_algorithms(True, warn_only=True)  # says which operator has no such variant
    model = model.to(device, memory_format=layout)
    wrapped = wrap(model, gang, options.ddp)
    called: nn.Module = wrapped.model
    if options.compile_mode:
        called = torch.compile(called, mode=options.compile_mode)  # type: ignore[assignment]

    def batch_loss(inputs: Inputs) -> Tensor:
        images, *rest = inputs
        return loss(called, (images.contiguous(memory_format=layout), *rest))

    training = Training(called, optimizer(model, device.type == "cuda"), precision, batch_loss)
    return Assembly(model, training, layout, wrapped)


def seed_everything(seed: int) -> None:
    """Python's, numpy's and torch's random numbers, on all devices."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
