"""Checkpoints: everything that the rest of a training depends on, in one file per saved epoch.

Learning rates are functions of epoch and step, so there is no schedule in it, and the options of the optimiser
(rate, momentum, weight decay) are those of the run that resumes.
"""

from __future__ import annotations

import dataclasses
import os
import random
import re
import time
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from training.common.errors import TrainingError, UserError
from training.common.gang import Gang
from training.common.step import Training
from training.wire.events import CheckpointSaved
from training.wire.schema import WireError, from_dict

FORMAT = "scaleout-checkpoint"
VERSION = 1
_NAME = re.compile(r"epoch_([0-9]+)\.pt")
_ZIP = b"PK\x03\x04"
_MAX_PROBLEM = 300


@dataclass(frozen=True)
class Checkpoint:
    """`epoch` and `step` count what is completed. `random` and `buffers` have one entry per rank.

    `model` is rank 0's. Batch-norm statistics are each rank's own (`ddp.wrap`), hence `buffers`.
    """

    program: str
    epoch: int
    step: int
    seed: int
    global_batch: int
    world_size: int
    classes: list[str]
    model_name: str
    model: dict[str, Tensor]
    optimizer: dict[str, Any]
    scaler: dict[str, Any]
    random: list[dict[str, Any]]
    buffers: list[dict[str, Tensor]]
    path: Path = Path()


def check_folder(folder: Path, gang: Gang, first_epoch: int) -> None:
    """Makes the folder and writes to it, before hours of training. Raises UserError on every rank.

    It must hold no checkpoint of more epochs than the training begins with: that would be taken for its newest.
    """

    def attempt() -> None:
        probe = folder / f".probe.{os.getpid()}.partial"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"checkpoint")
            probe.unlink()
        except OSError as error:
            raise UserError(
                f"no checkpoint can be written to {folder}: {_reason(error)}; name a folder that rank 0 may write to"
            ) from error
        later = [path.name for number, path in _saved(folder).items() if number > first_epoch]
        if later:
            raise UserError(
                f"{folder} holds {min(later)} of another training already; name another folder, or remove what is in it"
            )

    gang.share(attempt)


def save(
    folder: Path,
    training: Training,
    model: nn.Module,
    gang: Gang,
    *,
    program: str,
    model_name: str,
    epoch: int,
    step: int,
    seed: int,
    global_batch: int,
    classes: list[str],
) -> CheckpointSaved:
    """Writes `<folder>/epoch_<epoch>.pt`, whole or not at all. Every rank calls it; rank 0 of the gang writes.

    `model` is neither wrapped nor compiled, so that its names have no prefix. Raises TrainingError on every rank where
    it cannot be written.
    """
    began = time.perf_counter()
    path = folder / f"epoch_{epoch}.pt"
    ranks = gang.gather((_random_states(gang.device), _plain(_buffers(model))))

    def attempt() -> CheckpointSaved | str:
        document = {
            "format": FORMAT,
            "version": VERSION,
            "program": program,
            "epoch": epoch,
            "step": step,
            "seed": seed,
            "global_batch": global_batch,
            "world_size": gang.world_size,
            "classes": list(classes),
            "model_name": model_name,
            "model": _plain(model.state_dict()),
            "optimizer": _plain(training.optimizer.state_dict()),
            "scaler": _plain(training.precision.scaler.state_dict()),
            "random": [states for states, _ in ranks],
            "buffers": [buffers for _, buffers in ranks],
        }
        try:
            size = _write(path, document)
        except (OSError, RuntimeError) as error:  # torch turns what the file's write raises into a RuntimeError
            cause = error.__context__ if isinstance(error.__context__, OSError) else error
            return f"the checkpoint {path} cannot be written: {_reason(cause)}; older checkpoints are as they were"
        return CheckpointSaved(epoch=epoch, path=str(path), bytes=size, seconds=time.perf_counter() - began)

    saved = gang.share(attempt)
    if isinstance(saved, str):
        raise TrainingError(saved)
    return saved


def load(path: Path) -> Checkpoint:
    """The checkpoint in a file, or the newest one in a folder that `save` wrote to. Raises UserError."""
    path = _newest(path) if path.is_dir() else path
    document = read_file(path)
    if document.pop("format", None) != FORMAT:
        raise UserError(f"{path} is not a checkpoint of this program; give an epoch_<n>.pt that a training has saved")
    version = document.pop("version", None)
    if version != VERSION:
        raise UserError(
            f"{path} is a checkpoint of version {version} and this program reads {VERSION}; "
            "resume it with the release that wrote it"
        )
    try:
        found = from_dict(Checkpoint, document, str(path))
    except WireError as error:
        raise UserError(f"{_short(error)}: the checkpoint is damaged; load an older one") from error
    return dataclasses.replace(found, path=path)


def read_file(path: Path) -> dict[Any, Any]:
    """What a file of `torch.save` holds, on the CPU, never running code from it. Raises UserError."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_ZIP))
        if not start:
            raise UserError(f"the checkpoint {path} is empty; load an older one")
        if start == _ZIP and not _is_whole(path):
            raise UserError(f"the checkpoint {path} is truncated or damaged; load an older one or copy it again")
    except OSError as error:
        raise UserError(f"the checkpoint {path} cannot be read: {_reason(error)}") from error
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickles that are refused in the same breath
            document = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch.load raises whatever the bytes of another kind of file happen to mean
        raise UserError(
            f"{path} is not a checkpoint, or holds more than weights and numbers, which is never loaded; "
            "give an epoch_<n>.pt that a training has saved"
        ) from error
    if not isinstance(document, dict):
        raise UserError(f"{path} is not a checkpoint: it holds a {type(document).__name__}")
    return document


def check(checkpoint: Checkpoint, program: str, model_name: str, classes: list[str]) -> None:
    """Raises UserError where the checkpoint is of another program, model or list of classes."""
    of_this = "give a checkpoint of the training that is to go on"
    if checkpoint.program != program:
        raise UserError(f"{checkpoint.path} is a checkpoint of {checkpoint.program}, not of {program}; {of_this}")
    if checkpoint.model_name != model_name:
        raise UserError(
            f"{checkpoint.path} is a checkpoint of the model {checkpoint.model_name}, not of {model_name}; {of_this}"
        )
    if checkpoint.classes != classes:
        raise UserError(
            f"{checkpoint.path} was trained on {_listed(checkpoint.classes)}, the data has {_listed(classes)}; "
            "give the data that it was trained on"
        )


def restore(checkpoint: Checkpoint, training: Training, model: nn.Module, gang: Gang) -> None:
    """Puts weights, optimiser, loss scale and this rank's buffers and random states back. Raises UserError.

    In a gang of another size every rank begins with rank 0's buffers and with random states that are seeded from
    the checkpoint's seed and epoch, and its rank. `training` holds the wrapped model: wrapping copies rank 0's buffers.
    """
    same_ranks = checkpoint.world_size == gang.world_size
    state = checkpoint.model | (checkpoint.buffers[gang.rank] if same_ranks else {})
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise UserError(
            f"{checkpoint.path} does not fit the {checkpoint.model_name} of this release: {_short(error)}"
        ) from error
    _restore_optimizer(checkpoint, training.optimizer)
    scaler = training.precision.scaler
    if scaler.is_enabled() and checkpoint.scaler:
        scaler.load_state_dict(checkpoint.scaler)
    _reseed(checkpoint, gang)
    if same_ranks:
        _restore_random_states(checkpoint.random[gang.rank], gang.device)


def _restore_optimizer(checkpoint: Checkpoint, optimizer: torch.optim.Optimizer) -> None:
    own, saved = optimizer.state_dict()["param_groups"], checkpoint.optimizer["param_groups"]
    if [group["params"] for group in own] != [group["params"] for group in saved]:
        raise UserError(f"{checkpoint.path} was saved with other groups of parameters in the optimiser")
    optimizer.load_state_dict({"state": checkpoint.optimizer["state"], "param_groups": own})
    optimizer.zero_grad(set_to_none=True)
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                # fused SGD wants the memory layout of the parameter, which is not in the file
                state[name] = torch.empty_like(parameter).copy_(value)


def _random_states(device: torch.device) -> dict[str, Any]:
    version, words, gauss = random.getstate()
    name, numpy_words, position, has_gauss, cached = np.random.get_state()
    return {
        "python": [version, torch.tensor(words, dtype=torch.int64), gauss],
        "numpy": [name, torch.from_numpy(numpy_words.astype(np.int64)), position, has_gauss, cached],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def _restore_random_states(states: dict[str, Any], device: torch.device) -> None:
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words.tolist()), gauss))
    name, numpy_words, *rest = states["numpy"]
    np.random.set_state((name, numpy_words.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"])
    if device.type == "cuda" and states["cuda"] is not None:
        torch.cuda.set_rng_state(states["cuda"], device)


def _reseed(checkpoint: Checkpoint, gang: Gang) -> None:
    seed = random.Random(f"{checkpoint.seed} {checkpoint.epoch} {gang.rank}").getrandbits(32)
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    kept = model.state_dict().keys()
    return {name: buffer for name, buffer in model.named_buffers() if name in kept}


def _plain(value: Any) -> Any:
    """The same in containers and numbers that `weights_only` loads, tensors copied to the CPU and contiguous."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"a {type(value).__name__} does not go into a checkpoint")


def _write(path: Path, document: dict[str, Any]) -> int:
    """Returns the bytes written. A reader sees the old file or the whole new one, also after a loss of power."""
    partial = path.with_name(f".{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("wb") as out:
            torch.save(document, out)
            out.flush()
            os.fsync(out.fileno())
            size = out.tell()
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
    return size


def _newest(folder: Path) -> Path:
    try:
        found = _saved(folder)
    except OSError as error:
        raise UserError(f"the folder {folder} cannot be read: {_reason(error)}") from error
    if not found:
        raise UserError(f"the folder {folder} holds no checkpoint (epoch_<n>.pt); give another folder, or a file")
    return found[max(found)]


def _saved(folder: Path) -> dict[int, Path]:
    return {int(match[1]): path for path in folder.iterdir() if (match := _NAME.fullmatch(path.name))}


def _is_whole(path: Path) -> bool:
    """Whether a zip file has its directory and the checksums in it hold, which torch itself does not look at."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError):
        return False


def _reason(error: BaseException) -> str:
    return (isinstance(error, OSError) and error.strerror) or _short(error)


def _short(error: BaseException) -> str:
    return " ".join(str(error).split())[:_MAX_PROBLEM]


def _listed(classes: list[str]) -> str:
    return f"{len(classes)} classes ({', '.join(classes)})"
