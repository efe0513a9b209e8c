"""Weights of the reference program (NVIDIA DeepLearningExamples, PyTorch/Detection/SSD) under this model's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from training.common.checkpoint import read_file
from training.common.errors import UserError
from training.ssd.boxes import BOXES_PER_CELL
from training.ssd.model import SSD300

_WRAPPED = "module."
_PARTS = {
    "feature_extractor.feature_extractor.": "backbone.",
    "additional_blocks.": "blocks.",
    "loc.": "locations.",
    "conf.": "confidences.",
}


def is_reference_ssd(path: Path) -> bool:
    """Whether the file is a checkpoint that the reference program saved. Raises UserError where it is none at all."""
    return _weights(read_file(path)) is not None


def load_reference_ssd(path: Path, classes: int, backbone: str = "resnet50") -> dict[str, Tensor]:
    """The state dict of an SSD300 with that many classes, background included. Raises UserError.

    Only weights and batch-norm statistics are taken, not the optimiser's state.
    """
    found = _weights(read_file(path))
    if found is None:
        raise UserError(
            f"{path} is not a checkpoint of the reference SSD program: that has its weights under `model`, "
            "with names that begin with feature_extractor.feature_extractor., additional_blocks., loc. and conf."
        )
    with torch.device("meta"):
        expected = SSD300(classes, backbone).state_dict()
    another = f"{path} is not of an SSD300 with a {backbone}; give --backbone as it was trained"
    odd = sorted(found.keys() ^ expected.keys())
    if odd:
        raise UserError(f"{another}: {len(odd)} weights differ by name, the first is {odd[0]}")
    of_file = found["confidences.0.bias"].numel() // BOXES_PER_CELL[0]
    if of_file != classes:
        raise UserError(
            f"{path} scores {of_file} classes with the background and the data has {classes}; "
            "the reference program's weights fit only annotations with as many classes as it was trained on"
        )
    for name, tensor in expected.items():
        if found[name].shape != tensor.shape:
            shapes = f"{tuple(found[name].shape)}, not {tuple(tensor.shape)}"
            raise UserError(f"{another}: {name} is {shapes}")
    return {name: found[name] for name in expected}


def _weights(document: dict[Any, Any]) -> dict[str, Tensor] | None:
    """The weights under our names, None where the document is not the reference program's."""
    weights = document.get("model")
    if not isinstance(weights, dict) or not weights:
        return None
    renamed = {}
    for name, tensor in weights.items():
        part = next((part for part in _PARTS if str(name).removeprefix(_WRAPPED).startswith(part)), None)
        if part is None or not isinstance(tensor, Tensor):
            return None
        renamed[_PARTS[part] + name.removeprefix(_WRAPPED).removeprefix(part)] = tensor
    return renamed
