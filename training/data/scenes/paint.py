"""Paints a scene: flat colours, patches and shade over them, and sensor noise that gives PNGs of the real size."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from training.data.scenes.scene import HEIGHT, WIDTH, Thing

# Standard deviation of the noise in 1/100 grey level. They give about 2.7 MB per PNG at level 1; real frames have
# about as much (2.38 MB per train sample: cityscapes-dataset.com, 7.08 GB for 2,975 images and their labels).
_SMOOTH, _NORMAL, _ROUGH, _NONE = 55, 85, 165, 0
_NOISE = {"sky": _SMOOTH, "vegetation": _ROUGH, "building": 100, "rectification border": _NONE, "out of roi": _NONE}
_POOL = 97  # px by which frames move over the shared noise


def paint(things: list[Thing], rng: np.random.Generator) -> Image.Image:
    """The RGB picture of a scene."""
    colours = Image.new("RGB", (WIDTH, HEIGHT))
    strengths = Image.new("L", (WIDTH, HEIGHT))
    on_colours, on_strengths = ImageDraw.Draw(colours), ImageDraw.Draw(strengths)
    for thing in things:
        on_colours.polygon(thing.polygon, fill=thing.colour)
        on_strengths.polygon(thing.polygon, fill=_NOISE.get(thing.label, _NORMAL))
        for polygon, colour in thing.details:
            on_colours.polygon(polygon, fill=colour)
    return Image.fromarray(_textured(colours, strengths, rng))


def _textured(colours: Image.Image, strengths: Image.Image, rng: np.random.Generator) -> NDArray[np.uint8]:
    strength = np.asarray(strengths).astype(np.float32)[..., None]
    row, column = rng.integers(0, _POOL, 2)
    picture = _noise_pool()[row : row + HEIGHT, column : column + WIDTH] * (strength / 100)
    patches = _patches(rng, 32) * 7 + _patches(rng, 256) * 4 + np.linspace(5, -5, HEIGHT, dtype=np.float32)[:, None]
    picture += (patches * (strength[..., 0] > 0))[..., None]
    picture += np.asarray(colours)
    return np.clip(picture, 0, 255, out=picture).astype(np.uint8)


def _patches(rng: np.random.Generator, across: int) -> NDArray[np.float32]:
    """Smooth random patches of mean 0 and deviation about 1, `across` of them side by side."""
    coarse = Image.fromarray(rng.standard_normal((across // 2, across), dtype=np.float32))
    return np.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))


@lru_cache(maxsize=1)
def _noise_pool() -> NDArray[np.float32]:
    """Normal noise, larger than a frame: each frame takes its own part of it, which is faster than drawing anew."""
    return np.random.default_rng(0).standard_normal((HEIGHT + _POOL, WIDTH + _POOL, 3), dtype=np.float32)
