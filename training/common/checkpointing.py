"""Activation checkpointing (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost", section 4)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.utils.checkpoint import checkpoint
from torchvision.models.resnet import BasicBlock, Bottleneck


def recompute_blocks(model: nn.Module) -> None:
    """From now on residual blocks keep only what goes into them, and compute the rest again in the backward pass.

    Blocks are torchvision's and whatever module has a true `recomputable`. The results are those of before.
    """
    for module in model.modules():
        if isinstance(module, BasicBlock | Bottleneck) or getattr(module, "recomputable", False):
            random = any(isinstance(part, _DropoutNd) for part in module.modules())
            module.forward = functools.partial(_recomputed, module, module.forward, random)


def _recomputed(block: nn.Module, forward: Callable[[Tensor], Tensor], random: bool, x: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return forward(x)
    more: dict[str, Any] = {} if torch.compiler.is_compiling() else {"context_fn": functools.partial(_contexts, block)}
    return checkpoint(forward, x, use_reentrant=False, preserve_rng_state=random, **more)


def _contexts(block: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    return nullcontext(), _statistics_stay(block)


@contextmanager
def _statistics_stay(block: nn.Module) -> Iterator[None]:
    """Batch norm counts a batch once, though it is computed twice. (Compiled, torch sees to that itself.)"""
    norms = [module for module in block.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    before = [(norm.momentum, norm.num_batches_tracked) for norm in norms]
    for norm in norms:
        norm.momentum, norm.num_batches_tracked = 0.0, None
    try:
        yield
    finally:
        for norm, (momentum, counted) in zip(norms, before, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, counted
