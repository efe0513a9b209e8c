"""Images as torch sees them: decoding on the CPU, colours, and the normalisation that ImageNet's backbones expect."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from training.common.reading import Content, undecodable

MEAN = (0.485, 0.456, 0.406)  # of ImageNet, of values from 0 to 1
STD = (0.229, 0.224, 0.225)
BELOW_BLACK = -1e9  # a value of padding: black, whatever colours are made of it
_YIQ = torch.tensor([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])  # NTSC, from RGB


def decode(content: Content, path: Path) -> Tensor:
    """(3, H, W) uint8 RGB of an encoded image, turned upright. Raises UserError naming the file."""
    try:
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(content)))
        if image.mode.startswith("I"):  # 16 bits of grey, which PIL would clip and not scale
            image = Image.fromarray(((np.asarray(image).astype(np.uint32) + 128) // 257).astype(np.uint8))
        pixels = np.array(image.convert("RGB"))
    except Exception as error:  # PIL's decoders raise what the damaged bytes lead them to
        raise undecodable(path, error) from error
    return torch.from_numpy(pixels).permute(2, 0, 1)


class Colours(NamedTuple):
    """For B images, (B,) each: `hues` in degrees; the rest are factors, contrast about the grey value 128."""

    hues: NDArray[np.float32]
    saturations: NDArray[np.float32]
    brightnesses: NDArray[np.float32]
    contrasts: NDArray[np.float32]

    def maps(self) -> tuple[Tensor, Tensor]:
        """(B, 3, 3) and (B, 3): the linear map of RGB values from 0 to 255 that DALI's color_twist is.

        Hue and saturation turn and scale the chrominance in YIQ; then contrast, then brightness.
        """
        hues, saturations, brightnesses, contrasts = (torch.from_numpy(np.asarray(values)).float() for values in self)
        angles = torch.deg2rad(hues)
        turns = torch.zeros(len(hues), 3, 3)
        turns[:, 0, 0] = 1
        turns[:, 1, 1] = turns[:, 2, 2] = saturations * torch.cos(angles)
        turns[:, 1, 2] = saturations * torch.sin(angles)
        turns[:, 2, 1] = -turns[:, 1, 2]
        matrices = (brightnesses * contrasts)[:, None, None] * (torch.linalg.inv(_YIQ) @ turns @ _YIQ)
        return matrices, (brightnesses * 128 * (1 - contrasts))[:, None].expand(-1, 3)


def finished(images: Sequence[Tensor], colours: Colours) -> Tensor:
    """(B, 3, H, W) float32 of B images of values from 0 to 255: coloured, clamped and normalised for the backbone.

    All of it is a product of matrices and a clamp, a fraction of the time of DALI's color_twist on the CPU. Image by image,
    so that a pixel does not depend on the size of the batch that it is in.
    """
    mean, std = 255 * torch.tensor(MEAN), 255 * torch.tensor(STD)
    matrices, offsets = colours.maps()
    weights, biases = matrices / std[:, None], (offsets - mean) / std
    bounds = [((0 - mean) / std).tolist(), ((255 - mean) / std).tolist()]
    out = torch.empty(len(images), *images[0].shape)
    for image, weight, bias, place in zip(images, weights, biases, out, strict=True):
        torch.addmm(bias[:, None], weight, image.float().reshape(3, -1), out=place.view(3, -1))
        for channel, low, high in zip(place, *bounds, strict=True):
            channel.clamp_(low, high)  # bounds of a tensor's would take ten times as long
    return out
