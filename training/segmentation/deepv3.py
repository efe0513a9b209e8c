"""DeepLabV3+ (Chen et al. 2018, "Encoder-Decoder with Atrous Separable Convolution", section 3) on two trunks."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional

from training.common.errors import UserError
from training.segmentation.products import convolutions_as_one_product, resize_as_products
from training.segmentation.wider_resnet import WideResNet38

CLASSES = 19  # train ids of Cityscapes

_ASPP_RATES = (12, 24, 36)  # of output stride 8: twice those of 16 (DeepLabV3, Chen et al. 2017, section 3.3)
_ASPP_CHANNELS = 256
_DECODER_CHANNELS = 256
_SKIP_CHANNELS = 48
_NAMES_SHOWN = 3


class DeepV3Plus(nn.Module):
    """Normalised images (N, 3, H, W) to class scores (N, classes, H, W); H and W are any sizes of at least 16.

    `trunk` maps images to a skip feature and to a map at stride 8, with channels `skip_channels` and `out_channels`.
    """

    def __init__(self, trunk: ResNet50 | WideResNet38, classes: int = CLASSES) -> None:
        super().__init__()
        self.classes = classes
        self.trunk = trunk
        self.aspp = ASPP(trunk.out_channels)
        self.bot_aspp = nn.Conv2d(self.aspp.out_channels, _DECODER_CHANNELS, 1, bias=False)
        self.bot_fine = nn.Conv2d(trunk.skip_channels, _SKIP_CHANNELS, 1, bias=False)
        self.final = nn.Sequential(
            *_conv_bn_relu(_SKIP_CHANNELS + _DECODER_CHANNELS, _DECODER_CHANNELS, 3, padding=1),
            *_conv_bn_relu(_DECODER_CHANNELS, _DECODER_CHANNELS, 3, padding=1),
            nn.Conv2d(_DECODER_CHANNELS, classes, 1, bias=False),
        )
        for part in (self.aspp, self.bot_aspp, self.bot_fine, self.final):
            _kaiming(part)

    def forward(self, images: Tensor) -> Tensor:
        skip, x = self.trunk(images)
        context = _resize(self.bot_aspp(self.aspp(x)), skip.shape[2:])
        scores = self.final(torch.cat([self.bot_fine(skip), context], dim=1))
        return _resize(scores, images.shape[2:])


class DeepV3PlusW38(DeepV3Plus):
    """On WideResNet-38, whose skip feature has stride 2: the reference program's network, 137.10 M parameters."""

    def __init__(self, classes: int = CLASSES) -> None:
        trunk = WideResNet38()
        _kaiming(trunk)
        super().__init__(trunk, classes)


class DeepV3PlusR50(DeepV3Plus):
    """On ResNet-50, whose skip feature has stride 4: 40.35 M parameters, a quarter of W38's multiplications."""

    def __init__(self, classes: int = CLASSES) -> None:
        super().__init__(ResNet50(), classes)


class ResNet50(nn.Module):
    """torchvision's ResNet-50 dilated to stride 8, with its names.

    Images (N, 3, H, W) to layer1's output (N, 256, H/4, W/4) and layer4's (N, 2048, H/8, W/8), sizes rounded up.
    """

    skip_channels = 256
    out_channels = 2048

    def __init__(self) -> None:
        super().__init__()
        resnet = torchvision.models.resnet50(weights=None, replace_stride_with_dilation=[False, True, True])
        for name, child in resnet.named_children():
            if name not in ("avgpool", "fc"):
                self.add_module(name, child)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        skip = self.layer1(self.maxpool(self.relu(self.bn1(self.conv1(images)))))
        return skip, self.layer4(self.layer3(self.layer2(skip)))


class ASPP(nn.Module):
    """Atrous spatial pyramid pooling (DeepLabV3, Chen et al. 2017, section 3.3): (N, inputs, h, w) to (N, 1280, h, w).

    The concatenation holds, 256 channels each, the pooled image, a 1x1 and the three dilated 3x3 convolutions.
    """

    out_channels = (2 + len(_ASPP_RATES)) * _ASPP_CHANNELS

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.img_conv = nn.Sequential(
            nn.Conv2d(inputs, _ASPP_CHANNELS, 1, bias=False), PooledBatchNorm2d(_ASPP_CHANNELS), nn.ReLU(inplace=True)
        )
        self.features = nn.ModuleList([nn.Sequential(*_conv_bn_relu(inputs, _ASPP_CHANNELS, 1))])
        for rate in _ASPP_RATES:
            branch = _conv_bn_relu(inputs, _ASPP_CHANNELS, 3, padding=rate, dilation=rate)
            self.features.append(nn.Sequential(*branch))

    def forward(self, x: Tensor) -> Tensor:
        pooled = self.img_conv(functional.adaptive_avg_pool2d(x, 1))
        if x.is_cuda:
            convolved = convolutions_as_one_product(x, [convolution for convolution, _, _ in self.features])
            branches = [relu(norm(y)) for y, (_, norm, relu) in zip(convolved, self.features, strict=True)]
        else:
            branches = [branch(x) for branch in self.features]
        # what interpolation makes of a 1x1 map, but channels_last where the branches are: else the whole result is not
        everywhere = torch.empty_like(branches[0]).copy_(pooled)
        return torch.cat([everywhere, *branches], dim=1)


class PooledBatchNorm2d(nn.BatchNorm2d):
    """Batch normalisation of a 1x1 map that also trains with one image: (N, C, 1, 1) to the same shape.

    One value per channel has no variance, and torch refuses it. Then the running statistics are used and left as they
    are, as in evaluation: with batches of one from the first step on, the layer is a learned scale and offset.
    `SyncBatchNorm.convert_sync_batchnorm` replaces it, and has a value of each rank to use.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and x.shape[0] * x.shape[2] * x.shape[3] == 1:
            return functional.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


ARCHITECTURES: dict[str, Callable[[int], DeepV3Plus]] = {
    "deepv3.DeepV3PlusW38": DeepV3PlusW38,
    "deepv3.DeepV3PlusR50": DeepV3PlusR50,
}


def build(arch: str, classes: int, trunk_weights: Path | None) -> DeepV3Plus:
    """The network that `arch` names, as the reference's --arch does; without `trunk_weights` its trunk is random too.

    Raises UserError for an unknown name, and for a file that is not that trunk's weights (see `load_trunk`).
    """
    if arch not in ARCHITECTURES:
        near = difflib.get_close_matches(arch, ARCHITECTURES, n=1, cutoff=0.5)
        known = f"did you mean {near[0]}?" if near else f"choose from {', '.join(ARCHITECTURES)}"
        raise UserError(f"--arch {arch} is not known; {known}")
    model = ARCHITECTURES[arch](classes)
    if trunk_weights is not None:
        load_trunk(model.trunk, trunk_weights)
    return model


def load_trunk(trunk: nn.Module, path: Path) -> None:
    """Loads a trunk's state dict, plain or below `state_dict`, with or without `module.` before each name.

    For WideResNet-38 that is the reference's wider_resnet38.pth.tar, for ResNet-50 a torchvision resnet50. What the
    trunk does not have, such as a classifier, is ignored. Raises UserError naming what is missing or has another shape.
    """
    found = _state_dict(path)
    for name, own in trunk.state_dict().items():
        if name in found and found[name].shape != own.shape:
            shapes = f"{name} is {tuple(found[name].shape)}, not {tuple(own.shape)}"
            raise UserError(f"trunk weights {path} are not of a {type(trunk).__name__}: {shapes}")
    missing = trunk.load_state_dict(found, strict=False).missing_keys
    if missing:
        more = f" and {len(missing) - _NAMES_SHOWN} more" if len(missing) > _NAMES_SHOWN else ""
        names = ", ".join(missing[:_NAMES_SHOWN]) + more
        raise UserError(f"trunk weights {path} are not of a {type(trunk).__name__}: they lack {names}")


def _state_dict(path: Path) -> dict[str, Tensor]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"trunk weights {path}: {error.strerror or error}") from error
    except Exception as error:  # torch.load raises whatever the bytes of another kind of file happen to mean
        raise UserError(
            f"trunk weights {path} cannot be read: not a file of torch.save, or with more in it than tensors and numbers"
        ) from error
    if isinstance(found, Mapping) and isinstance(found.get("state_dict"), Mapping):
        found = found["state_dict"]
    if not isinstance(found, Mapping):
        raise UserError(f"trunk weights {path} hold a {type(found).__name__}, not a state dict")
    return {str(name).removeprefix("module."): value for name, value in found.items() if isinstance(value, Tensor)}


def _conv_bn_relu(inputs: int, outputs: int, size: int, padding: int = 0, dilation: int = 1) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, size, padding=padding, dilation=dilation, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]


def _kaiming(part: nn.Module) -> None:
    """He et al. 2015, "Delving Deep into Rectifiers", eq. 10; torch's own default starts with a sixth of its variance."""
    for module in part.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")


def _resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    if x.is_cuda:
        return resize_as_products(x, size)
    return functional.interpolate(x, size=size, mode="bilinear", align_corners=False)
