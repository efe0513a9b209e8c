"""From a model to what trains it: memory layout, DDP, compilation, precision and optimiser, the same for both programs.

On a GPU the step is compiled where it can be (`compiler`), and launched as one CUDA graph where a host would launch its
kernels more slowly than the GPU runs them: this changes how the same arithmetic is run, and takes its time in the warm-up,
before any clock starts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from training.common import compiler
from training.common.args import NOT_COMPILED, CommonOptions
from training.common.checkpointing import recompute_blocks
from training.common.ddp import Ddp, Settings, choose
from training.common.errors import UserError
from training.common.gang import Gang
from training.common.graph import StepGraph
from training.common.precision import Precision
from training.common.step import Inputs, Training

_OWN_GRAPHS = ("reduce-overhead", "max-autotune")  # modes in which torch.compile makes CUDA graphs itself


@dataclass(frozen=True)
class Assembly:
    """`model` is the bare one, whose state is saved and which validation calls; `training` steps the one that `ddp` wrapped.

    `how` says for the log how a step is run.
    """

    model: nn.Module
    training: Training
    layout: torch.memory_format
    ddp: Ddp
    how: str


def _settings(options: CommonOptions) -> Settings:
    return Settings(options.ddp_bucket_mb, options.ddp_bucket_view, options.ddp_static_graph, options.ddp_compress)


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
    launch_bound: bool,
    optimizer: Callable[[nn.Module, bool], torch.optim.Optimizer],
    loss: Callable[[nn.Module, Inputs], Tensor],
) -> Assembly:
    """`optimizer` gets the model and whether it may be fused; `loss` the wrapped model and a batch, images first.

    `launch_bound`: the step's kernels are so short that a host launches them more slowly than a GPU runs them.
    Raises UserError.
    """
    device = gang.device
    layout = memory_layout(options.data_layout, device)
    precision = Precision.choose(options.precision, mixed_precision, options.allow_tf32, device, dilated)
    if options.deterministic:
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
        torch.use_deterministic_algorithms(True, warn_only=True)  # says which operator has no such variant
    model = model.to(device, memory_format=layout)
    if options.activation_checkpointing:
        recompute_blocks(model)
    updates = optimizer(model, device.type == "cuda")
    ddp = choose(gang, options.ddp, _settings(options))
    graph = StepGraph() if is_one_graph(options, launch_bound, gang, ddp.name, updates) else None
    mode, uncompiled = _compile_mode(options, "reduce-overhead" if launch_bound and not graph else "default", device)
    # DDP gets a model that is compiled already: only then torch cuts that at the buckets of gradients
    compiled_model = torch.compile(model, mode=mode, dynamic=False) if mode else model
    with torch.cuda.stream(graph.stream if graph else None):
        wrapped = ddp.wrap(compiled_model)

    def loss_of(inputs: Inputs) -> Tensor:
        return loss(wrapped, inputs)

    whole = torch.compile(loss_of, mode=mode, dynamic=False) if mode else loss_of

    def batch_loss(inputs: Inputs) -> Tensor:
        images, *rest = inputs  # in one layout, whichever a loader gives: compiled code is made for one
        return whole((images.contiguous(memory_format=layout), *(tensor.contiguous() for tensor in rest)))

    training = Training(wrapped, updates, precision, batch_loss, graph, mode in _OWN_GRAPHS)
    compiled = f"compiled ({mode})" if mode else f"not compiled: {uncompiled}"
    launched = "as one CUDA graph" if graph else "as CUDA graphs" if training.own_graphs else "one by one"
    how = f"{compiled}; kernels launched {launched}"
    return Assembly(model, training, layout, ddp, how)


def _compile_mode(options: CommonOptions, usual: str, device: torch.device) -> tuple[str | None, str]:
    """The mode for torch.compile; None with the reason where the step is not compiled. Raises UserError."""
    if options.compile_mode == NOT_COMPILED:
        return None, "--no-compile"
    if asked := compiler.asked_mode(options.compile_mode, device):
        return asked, ""
    if device.type == "cpu":
        return None, "the default on the CPU"
    why_not = "--deterministic" if options.deterministic else compiler.why_not(device)
    return (None, why_not) if why_not else (usual, "")


def is_one_graph(
    options: CommonOptions, launch_bound: bool, gang: Gang, ddp: str, optimizer: torch.optim.Optimizer
) -> bool:
    """Whether a step is launched as one CUDA graph: as asked; else where it is `launch_bound` and can be captured.

    Raises UserError where it is asked for and cannot be.
    """
    if options.cuda_graph is None:
        as_it_is = options.deterministic or options.compile_mode == NOT_COMPILED
        return launch_bound and not as_it_is and _why_no_graph(options, gang, ddp, optimizer) is None
    if options.cuda_graph and (why_not := _why_no_graph(options, gang, ddp, optimizer)):
        raise UserError(f"--cuda-graph: {why_not}; leave it out")
    return options.cuda_graph


def _why_no_graph(options: CommonOptions, gang: Gang, ddp: str, optimizer: torch.optim.Optimizer) -> str | None:
    if gang.device.type == "cpu":
        return "there is no GPU"
    if gang.backend == "gloo":
        return "an exchange over gloo cannot be captured"
    if ddp == "apex":
        return "apex's DDP cannot be captured (torch's can: --ddp torch)"
    if options.compile_mode in _OWN_GRAPHS:
        return f"--compile {options.compile_mode} makes graphs of its own"
    if not isinstance(optimizer, torch.optim.SGD):
        return "of the optimisers only SGD can be captured"
    return None


def seed_everything(seed: int) -> None:
    """Python's, numpy's and torch's random numbers, on all devices."""
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
