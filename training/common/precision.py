"""Numeric precision of a run: autocast, TF32 and loss scaling."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from training.common.errors import UserError

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Precision:
    """`name` is one of fp32, tf32, bf16, fp16; only fp16 scales the loss."""

    name: str
    device: torch.device
    scaler: torch.amp.GradScaler = field(repr=False)

    @classmethod
    def choose(
        cls, asked: str, mixed: bool, allow_tf32: bool, device: torch.device, dilated: bool = False
    ) -> Precision:
        """Resolves `auto`: on GPU fp16, or where `mixed` is False TF32 if allowed; on CPU fp32.

        Sets torch's TF32 switches, which also rule what autocast leaves in single precision, and on a GPU lets cuDNN
        choose algorithms by timing them. Not in single precision where convolutions are `dilated`: one that it tries
        there takes seconds and up to 100 GiB, a warm-up of minutes. Raises UserError.
        """
        on_gpu = device.type == "cuda"
        name = asked
        if asked == "auto":
            single = "tf32" if allow_tf32 else "fp32"
            name = ("fp16" if mixed else single) if on_gpu else "fp32"
        if name in ("fp16", "tf32") and not on_gpu:
            raise UserError(f"--precision {name} needs a GPU; on the CPU use fp32 or bf16")
        if name == "tf32" and not allow_tf32:
            raise UserError("--precision tf32 contradicts --no-allow-tf32; give one of them")
        tf32 = allow_tf32 and name != "fp32"
        torch.set_float32_matmul_precision("high" if tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = on_gpu and (name in _AUTOCAST or not dilated)
        return cls(name, device, torch.amp.GradScaler(device.type, enabled=name == "fp16"))

    def autocast(self) -> torch.autocast:
        """The context for forward and loss."""
        dtype = _AUTOCAST.get(self.name)
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None)
