"""Which DistributedDataParallel wraps the model: apex's where it exists, else torch's."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from training.common.errors import UserError
from training.common.gang import Gang

# torch 2.14 renamed the switch
_SWITCHES = inspect.signature(DistributedDataParallel).parameters
_BUFFER_SWITCH = "forward_sync_buffers" if "forward_sync_buffers" in _SWITCHES else "broadcast_buffers"


@dataclass(frozen=True)
class Ddp:
    """What wraps the model, which DDP it is (`torch`, `apex`, `none`), and why, for the log."""

    name: str
    reason: str
    wrap: Callable[[nn.Module], nn.Module]


@dataclass(frozen=True)
class Settings:
    """Of torch's DDP. `bucket_mb` (MiB of gradients that are reduced at once) None: torch's own choice.

    `bucket_view`: gradients are where they are reduced, not copied there and back.
    """

    bucket_mb: float | None = None
    bucket_view: bool = True
    static_graph: bool = False
    compress: str = "none"

    def flags(self) -> list[str]:
        """The flags that were given."""
        given = {
            "--ddp-bucket-mb": self.bucket_mb is not None,
            "--no-ddp-bucket-view": not self.bucket_view,
            "--ddp-static-graph": self.static_graph,
            "--ddp-compress": self.compress != "none",
        }
        return [flag for flag, is_given in given.items() if is_given]


def choose(gang: Gang, choice: str, settings: Settings | None = None) -> Ddp:
    """The one that `choice` (auto, torch, apex) says; one process needs no wrapping. Raises UserError.

    As apex's does, torch's then leaves batch-norm statistics to each rank. Settings are for torch's: auto then means torch.
    """
    settings = settings or Settings()
    if settings.flags():
        if choice == "apex":
            raise UserError(f"--ddp apex has no {', '.join(settings.flags())}; give --ddp torch")
        choice = "torch"
    on_gpu = gang.device.type == "cuda"
    if choice == "apex" and not on_gpu:
        raise UserError("--ddp apex needs GPUs; on the CPU use --ddp torch")
    apex, why_not = find_apex() if on_gpu and choice != "torch" else (None, "not asked for")
    if choice == "apex" and apex is None:
        raise UserError(f"--ddp apex: {why_not}; use --ddp torch")
    if gang.backend is None:
        return Ddp("none", "one process", lambda model: model)
    if apex is not None:
        return Ddp("apex", "apex.parallel is installed", apex)
    reason = "as asked" if choice == "torch" else why_not if on_gpu else "apex is not used on the CPU"
    return Ddp("torch", reason, lambda model: _torch_ddp(model, gang, settings))


def _torch_ddp(model: nn.Module, gang: Gang, settings: Settings) -> nn.Module:
    bucket = {} if settings.bucket_mb is None else {"bucket_cap_mb": settings.bucket_mb}
    buffers_stay = {_BUFFER_SWITCH: False}
    wrapped = DistributedDataParallel(
        model,
        device_ids=[gang.device.index] if gang.device.type == "cuda" else None,
        gradient_as_bucket_view=settings.bucket_view,
        static_graph=settings.static_graph,
        **bucket,
        **buffers_stay,
    )
    if settings.compress == "bf16":
        wrapped.register_comm_hook(None, default_hooks.bf16_compress_hook)
    return wrapped


def find_apex() -> tuple[type[nn.Module] | None, str]:
    """NVIDIA apex's DistributedDataParallel, or None and why: absent, too new (removed in 25.07) or another package."""
    if importlib.util.find_spec("apex") is None:
        return None, "apex is not installed"
    try:
        package = importlib.import_module("apex")
    except Exception as error:  # the package of the same name on PyPI fails in ways of its own
        return None, f"the installed apex cannot be imported ({type(error).__name__}) and is not NVIDIA's"
    if not any(importlib.util.find_spec(f"apex.{part}") for part in ("optimizers", "normalization", "parallel")):
        return None, f"the installed apex ({package.__file__}) is an unrelated package, not NVIDIA's"
    if importlib.util.find_spec("apex.parallel") is None:
        return None, "this NVIDIA apex no longer has apex.parallel (removed in 25.07)"
    found = getattr(importlib.import_module("apex.parallel"), "DistributedDataParallel", None)
    return found, "" if found else "this NVIDIA apex has no parallel.DistributedDataParallel"
