"""WideResNet-38, variant A2, dilated to an output stride of 8 (Wu et al. 2016, "Wider or Deeper", Table 1 and sec. 4).

Names of modules are those of the published ImageNet weights of this network, so that such a file loads as it is.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Stage:
    """One of mod2..mod7: `blocks` residual blocks, each with convolutions of these channels.

    Two channels make two 3x3 convolutions, three a bottleneck of 1x1, 3x3, 1x1. The first block has the stride.
    """

    blocks: int
    channels: tuple[int, ...]
    stride: int = 1
    dilation: int = 1
    dropout: float = 0.0


STAGES = (
    Stage(3, (128, 128)),
    Stage(3, (256, 256)),
    Stage(6, (512, 512), stride=2),
    Stage(3, (512, 1024), dilation=2),
    Stage(1, (512, 1024, 2048), dilation=4, dropout=0.3),
    Stage(1, (1024, 2048, 4096), dilation=4, dropout=0.5),
)

_STEM_CHANNELS = 64


class WideResNet38(nn.Module):
    """Images (N, 3, H, W) to mod2's output (N, 128, H/2, W/2) and mod7's (N, 4096, H/8, W/8), sizes rounded up.

    Neither is normalised or rectified: identity residual blocks do that to their input.
    """

    skip_channels = STAGES[0].channels[-1]
    out_channels = STAGES[-1].channels[-1]

    def __init__(self) -> None:
        super().__init__()
        self.mod1 = nn.Sequential(OrderedDict(conv1=nn.Conv2d(3, _STEM_CHANNELS, 3, padding=1, bias=False)))
        self.pool2 = nn.MaxPool2d(3, stride=2, padding=1)
        self.pool3 = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = _STEM_CHANNELS
        for number, stage in enumerate(STAGES, start=2):
            self.add_module(f"mod{number}", _stage(inputs, stage))
            inputs = stage.channels[-1]

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        skip = self.mod2(self.pool2(self.mod1(images)))
        x = self.mod4(self.mod3(self.pool3(skip)))
        return skip, self.mod7(self.mod6(self.mod5(x)))


class IdentityBlock(nn.Module):
    """A pre-activation residual block (He et al. 2016, "Identity Mappings in Deep Residual Networks", Fig. 4e).

    Where the shape changes, the shortcut is a 1x1 projection of the normalised and rectified input.
    """

    recomputable = True

    def __init__(self, inputs: int, channels: tuple[int, ...], stride: int, dilation: int, dropout: float) -> None:
        super().__init__()
        bottleneck = len(channels) == 3
        self.bn1 = _bn_relu(inputs)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        for number, (before, after) in enumerate(zip((inputs, *channels), channels, strict=False), start=1):
            last = number == len(channels)
            if number > 1:
                layers[f"bn{number}"] = _bn_relu(before)
            if last and dropout:
                layers["dropout"] = nn.Dropout2d(dropout)
            first_stride = stride if number == 1 else 1
            if bottleneck and number != 2:
                layers[f"conv{number}"] = nn.Conv2d(before, after, 1, stride=first_stride, bias=False)
            else:
                layers[f"conv{number}"] = nn.Conv2d(
                    before, after, 3, stride=first_stride, padding=dilation, dilation=dilation, bias=False
                )
        self.convs = nn.Sequential(layers)
        changes_shape = stride != 1 or inputs != channels[-1]
        self.proj_conv = nn.Conv2d(inputs, channels[-1], 1, stride=stride, bias=False) if changes_shape else None

    def forward(self, x: Tensor) -> Tensor:
        active = self.bn1(x)
        shortcut = x if self.proj_conv is None else self.proj_conv(active)
        return shortcut + self.convs(active)


def _stage(inputs: int, stage: Stage) -> nn.Sequential:
    blocks: OrderedDict[str, nn.Module] = OrderedDict()
    for number in range(1, stage.blocks + 1):
        stride = stage.stride if number == 1 else 1
        blocks[f"block{number}"] = IdentityBlock(inputs, stage.channels, stride, stage.dilation, stage.dropout)
        inputs = stage.channels[-1]
    return nn.Sequential(blocks)


def _bn_relu(channels: int) -> nn.Sequential:
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(inplace=True))
