"""SSD300 on a ResNet that ends after its third stage, with a 38x38 map (the reference program's variant of SSD)."""

from __future__ import annotations

from pathlib import Path

import torch
import torchvision
from torch import Tensor, nn

from training.common.errors import UserError
from training.ssd.boxes import BOXES_PER_CELL

_CHANNELS = {  # of the six feature maps (the reference program's)
    "resnet18": (256, 512, 512, 256, 256, 128),
    "resnet34": (256, 512, 512, 256, 256, 256),
    "resnet50": (1024, 512, 512, 256, 256, 256),
    "resnet101": (1024, 512, 512, 256, 256, 256),
    "resnet152": (1024, 512, 512, 256, 256, 256),
}
_MIDDLE_CHANNELS = (256, 256, 128, 128, 128)
_STRIDED_BLOCKS = 3


class SSD300(nn.Module):
    """Images (N, 3, 300, 300) to box offsets (N, 4, 8732) and class scores (N, classes, 8732), background at 0."""

    def __init__(self, classes: int, backbone: str = "resnet50", weights: Path | None = None) -> None:
        """`classes` counts the background; `weights` is as for `resnet_backbone`. Raises UserError."""
        super().__init__()
        channels_of_maps = _CHANNELS[backbone]
        self.classes = classes
        self.backbone = resnet_backbone(backbone, weights)
        blocks, locations, confidences = [], [], []
        for level, (middle, inputs, outputs) in enumerate(
            zip(_MIDDLE_CHANNELS, channels_of_maps, channels_of_maps[1:], strict=False)
        ):
            blocks.append(_extra_block(inputs, middle, outputs, strided=level < _STRIDED_BLOCKS))
        for channels, boxes in zip(channels_of_maps, BOXES_PER_CELL, strict=True):
            locations.append(nn.Conv2d(channels, boxes * 4, 3, padding=1))
            confidences.append(nn.Conv2d(channels, boxes * classes, 3, padding=1))
        self.blocks = nn.ModuleList(blocks)
        self.locations = nn.ModuleList(locations)
        self.confidences = nn.ModuleList(confidences)
        for part in (self.blocks, self.locations, self.confidences):
            for parameter in part.parameters():
                if parameter.dim() > 1:
                    nn.init.xavier_uniform_(parameter)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        maps = [self.backbone(images)]
        for block in self.blocks:
            maps.append(block(maps[-1]))
        offsets = [head(x).flatten(1).unflatten(1, (4, -1)) for head, x in zip(self.locations, maps, strict=True)]
        scores = [
            head(x).flatten(1).unflatten(1, (self.classes, -1)) for head, x in zip(self.confidences, maps, strict=True)
        ]
        return torch.cat(offsets, dim=2), torch.cat(scores, dim=2)


def resnet_backbone(name: str, weights: Path | None) -> nn.Sequential:
    """torchvision's ResNet up to layer3, whose stride is taken out: (N, 3, 300, 300) to (N, channels, 38, 38).

    `weights` is a file with the state dict of that torchvision ResNet. None leaves it random, with residual branches
    that begin at zero (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 5.1): else the last map, which the
    heads take as it is, grows with every block, and the published learning rate drives scores beyond what fp16 holds.
    Raises UserError.
    """
    resnet = torchvision.models.get_model(name, weights=None, zero_init_residual=True)
    if weights is not None:
        _load(resnet, name, weights)
    first = resnet.layer3[0]
    for convolution in (first.conv1, first.conv2, first.downsample[0]):
        convolution.stride = (1, 1)
    return nn.Sequential(*list(resnet.children())[:7])


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Optimiser groups: biases and other one-dimensional parameters are not decayed."""
    groups: dict[bool, list[nn.Parameter]] = {True: [], False: []}
    for parameter in model.parameters():
        groups[parameter.dim() > 1].append(parameter)
    return [{"params": groups[False], "weight_decay": 0.0}, {"params": groups[True], "weight_decay": weight_decay}]


def _load(resnet: nn.Module, name: str, path: Path) -> None:
    try:
        resnet.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except OSError as error:
        raise UserError(f"--backbone-path {path}: {error.strerror or error}") from error
    except Exception as error:  # torch.load raises whatever the bytes of another kind of file happen to mean
        problem = f"{type(error).__name__}: {error}"[:300]
        raise UserError(f"--backbone-path {path} is not the state dict of a torchvision {name}: {problem}") from error


def _extra_block(inputs: int, middle: int, outputs: int, strided: bool) -> nn.Sequential:
    stride, padding = (2, 1) if strided else (1, 0)
    return nn.Sequential(
        nn.Conv2d(inputs, middle, 1, bias=False),
        nn.BatchNorm2d(middle),
        nn.ReLU(inplace=True),
        nn.Conv2d(middle, outputs, 3, stride=stride, padding=padding, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )
