"""Images as torch sees them: decoding on the CPU and the normalisation that ImageNet's backbones expect."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from training.common.errors import UserError
from training.common.reading import Content

MEAN = (0.485, 0.456, 0.406)  # of ImageNet, of values from 0 to 1
STD = (0.229, 0.224, 0.225)
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


def coloured(image: Tensor, hue: float, saturation: float, brightness: float, contrast: float) -> Tensor:
    """(3, H, W) float of values from 0 to 255, whole numbers: DALI's color_twist, one linear map that is rounded once.

    Hue in degrees and saturation turn and scale the chrominance in YIQ; then contrast about 128, then brightness.
    """
    angle = math.radians(hue)
    cosine, sine = saturation * math.cos(angle), saturation * math.sin(angle)
    turn = torch.tensor([[1.0, 0.0, 0.0], [0.0, cosine, sine], [0.0, -sine, cosine]])
    matrix = torch.linalg.inv(_YIQ) @ turn @ _YIQ
    contrasted = contrast * torch.einsum("ij,jhw->ihw", matrix, image.float()) + 128 * (1 - contrast)
    return (brightness * contrasted).round().clamp(0, 255)


def undecodable(path: Path, reason: Exception) -> UserError:
    """What a user is told of a file that is no image."""
    said = " ".join(str(reason).split())
    return UserError(f"{path} cannot be decoded ({said}); put the image back, or take it out of the data set")
