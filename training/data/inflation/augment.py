"""The augmentations of a variant: a part of the frame at full size, mirrored or not, other colours, sensor noise.

What a variant is made with follows from the seed, the frame's name and the variant's number alone. All arithmetic on pixels is
in whole numbers, so that a variant is the same on any machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from training.data.inflation.geometry import Geometry
from training.data.inflation.noise import NOISE_VALUES, Noise

Pixels = NDArray[np.uint8]

_SCALE = (0.8, 1.0)  # the part's sides, of the frame's
_CONTRAST = (0.8, 1.2)
_BRIGHTNESS = (-16.0, 16.0)  # grey levels
_BEND = (-16.0, 16.0)  # grey levels that a middle grey is lifted by, as gamma does, where black and white stay
_TINT = (0.97, 1.03)  # of one colour channel
_ONE = 64  # tones are counted in 1/64 of a grey level, so that all of them fit 16 bits
_ROWS = 16  # done at a time, so that they stay in the core's cache


@dataclass(frozen=True)
class Tone:
    """A channel's curve, in 1/64: `gain` x + `bend` x (255 - x) / 256 + `offset`, of a grey level x."""

    gain: int
    bend: int
    offset: int


@dataclass(frozen=True)
class Change:
    """What a variant is made with: its part of the frame, its red, green and blue, the place of its noise."""

    geometry: Geometry
    tones: tuple[Tone, Tone, Tone]
    noise_at: int


def draw_change(seed: int, frame_name: str, variant: int, width: int, height: int) -> Change:
    """The change that makes variant `variant` (1 or more: 0 is the frame itself) of a frame of width x height px."""
    digest = hashlib.blake2b(f"{seed}/{frame_name}/{variant}".encode()).digest()
    draws = (int(word) / 2**32 for word in np.frombuffer(digest, dtype="<u4"))
    geometry = _draw_geometry(draws, width, height)
    contrast, brightness, bend = (_between(*limits, next(draws)) for limits in (_CONTRAST, _BRIGHTNESS, _BEND))
    red, green, blue = (_tone(contrast * _between(*_TINT, next(draws)), brightness, bend) for _ in range(3))
    return Change(geometry, (red, green, blue), noise_at=int(next(draws) * NOISE_VALUES))


def _between(low: float, high: float, draw: float) -> float:
    return low + (high - low) * draw


def _draw_geometry(draws: Iterator[float], width: int, height: int) -> Geometry:
    part_height = max(1, round(_between(*_SCALE, next(draws)) * height))
    part_width = min(width, max(1, round(part_height * width / height)))
    left = int(next(draws) * (width - part_width + 1))
    top = int(next(draws) * (height - part_height + 1))
    return Geometry(left, top, part_width, part_height, flip=next(draws) < 0.5)


def _tone(gain: float, brightness: float, bend: float) -> Tone:
    """Contrast turns about middle grey."""
    return Tone(round(gain * _ONE), round(bend), round((brightness + (1 - gain) * 128) * _ONE))


class Augmenter:
    """Makes variants of frames. `noise` is its standard deviation in grey levels. Holds torch to one thread."""

    def __init__(self, seed: int, noise: float) -> None:
        torch.set_num_threads(1)
        self._noise = Noise(seed, noise)

    def image(self, pixels: Pixels, change: Change) -> Pixels:
        """The variant (height, width, 3) of a frame's picture (height, width, 3)."""
        part = change.geometry
        height, width, _ = pixels.shape
        cut = torch.from_numpy(pixels[part.top : part.top + part.height, part.left : part.left + part.width])[None]
        planes = cut.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        if part.flip:
            planes = planes.flip(3)
        # Its 8-bit filter is in whole numbers, the same with and without the CPU's vector instructions.
        sized = torch.nn.functional.interpolate(planes, (height, width), mode="bilinear", antialias=True)
        lines = sized[0].permute(1, 2, 0).numpy().reshape(height, 3 * width)
        self._develop(lines, change)
        return lines.reshape(height, width, 3)

    def _develop(self, lines: Pixels, change: Change) -> None:
        """Colours and noise, in place, on lines (height, width * 3)."""
        height, values = lines.shape
        gain, bend, offset = (
            np.tile(np.array([getattr(tone, name) for tone in change.tones], np.int16), values // 3)
            for name in ("gain", "bend", "offset")
        )
        offset += _ONE // 2
        for top in range(0, height, _ROWS):
            rows = lines[top : top + _ROWS]
            x = rows.astype(np.int16)
            bent = 255 - x
            bent *= x
            bent >>= 8
            bent *= bend
            x *= gain
            x += bent
            x += offset
            x >>= 6
            x += self._noise.at(change.noise_at + top * values, rows.size).reshape(rows.shape)
            np.clip(x, 0, 255, out=rows, casting="unsafe")
