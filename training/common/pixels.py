"""Images as torch sees them: decoding on the CPU and the normalisation that ImageNet's backbones expect."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from training.common.errors import UserError
from training.common.reading import Content

MEAN = (0.485, 0.456, 0.406)  # of ImageNet, of values from 0 to 1
STD = (0.229, 0.224, 0.225)


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


def undecodable(path: Path, reason: Exception) -> UserError:
    """What a user is told of a file that is no image."""
    said = " ".join(str(reason).split())
    return UserError(f"{path} cannot be decoded ({said}); put the image back, or take it out of the data set")
