"""The optimiser of both programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch


def sgd(groups: Iterable[dict[str, Any]], learning_rate: float, momentum: float, fused: bool) -> torch.optim.SGD:
    """SGD with momentum. `fused` is for GPUs: then the host need not wait to see whether the scaled loss overflowed.

    The momentum begins as zeros, which changes no step. Without them torch's fused SGD begins with uninitialised
    memory, and keeps that where the first step is skipped, as it usually is under fp16: the scale is still too large.
    """
    optimizer = torch.optim.SGD(groups, lr=learning_rate, momentum=momentum, fused=fused)
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    return optimizer
