"""What happens to each training image: scale, crop, flip, colour; and which pixels a crop of the scaled image needs.

The law is that of scaling the whole image and cropping the result: sizes, places and resampling positions are those of the
scaled image, whose other pixels are never made. A crop of it is a window of the source with fractional edges, so only that
window, with a margin for the resampling filter, is decoded and resized.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.common.pixels import Colours

Floats = NDArray[np.float64]

_SCALE, _FLIP, _HUE, _SATURATION, _BRIGHTNESS, _CONTRAST, _ROW, _COLUMN = range(8)
NUMBERS = 8
NEAREST_SHIFT = 1e-3
"""px: added to where nearest neighbours are looked for, as half of all scales put many pixels exactly between two others.

There rounding decides, and not everywhere alike: single precision is good for a tenth of this.
"""
_ANYWHERE = 1e9  # px, more than any image has


@dataclass(frozen=True)
class Ranges:
    """`crop` is height and width in px. `color_aug` c: factors from 1 - c to 1 + c, hue by up to c of the circle."""

    crop: tuple[int, int]
    scale_min: float
    scale_max: float
    color_aug: float


class Augmentation(NamedTuple):
    """For B images, independent of their sizes, which are known once the files are read.

    `scales` (B,); `points` (B, 2) row and column in px of the source which the crop contains, give or take `reaches`
    (B, 2) px; `places` (B, 2) in [0, 1), where between its first and last possible place a crop is; `flips` (B,) 0 or 1;
    `hues` in degrees; the rest are factors, contrast about the grey value 128.
    """

    scales: Floats
    points: Floats
    reaches: Floats
    places: Floats
    flips: NDArray[np.int32]
    hues: NDArray[np.float32]
    saturations: NDArray[np.float32]
    brightnesses: NDArray[np.float32]
    contrasts: NDArray[np.float32]

    @property
    def colours(self) -> Colours:
        return Colours(self.hues, self.saturations, self.brightnesses, self.contrasts)


def augment(uniforms: Floats, points: Floats, has_point: NDArray[np.bool_], ranges: Ranges) -> Augmentation:
    """Turns (B, NUMBERS) uniforms into augmentations; crops of images without a point can be anywhere."""
    c = ranges.color_aug

    def factors(number: int, low: float, high: float) -> NDArray[np.float32]:
        return (low + (high - low) * uniforms[:, number]).astype(np.float32)

    return Augmentation(
        scales=ranges.scale_min + (ranges.scale_max - ranges.scale_min) * uniforms[:, _SCALE],
        points=points,
        reaches=np.repeat(np.where(has_point, 0.0, _ANYWHERE)[:, None], 2, axis=1),
        places=np.ascontiguousarray(uniforms[:, [_ROW, _COLUMN]]),
        flips=(uniforms[:, _FLIP] < 0.5).astype(np.int32),
        hues=factors(_HUE, -360 * c, 360 * c),
        saturations=factors(_SATURATION, 1 - c, 1 + c),
        brightnesses=factors(_BRIGHTNESS, 1 - c, 1 + c),
        contrasts=factors(_CONTRAST, 1 - c, 1 + c),
    )


class Functions(NamedTuple):
    """The arithmetic beside + - * / that a kind of numbers has: numpy's arrays, or the nodes of a DALI graph."""

    floor: Callable[[Any], Any]
    ceil: Callable[[Any], Any]
    least: Callable[[Any, Any], Any]
    greatest: Callable[[Any, Any], Any]


NUMPY = Functions(np.floor, np.ceil, np.minimum, np.maximum)


class Window(NamedTuple):
    """A crop of a scaled image, all in px, row first.

    Of the source, `decoded` pixels from `corner` on are decoded, and of these those from `start` to `end`, which are no
    whole numbers, become `size` pixels of the crop; `before` pixels of padding lie before them, the rest behind.
    """

    corner: Any
    decoded: Any
    start: Any
    end: Any
    size: Any
    before: Any


def window(source: Any, crop: Any, scale: Any, point: Any, reach: Any, place: Any, use: Functions) -> Window:
    """The window of a `crop` (2,) of an image whose size is `source` (2,) px, from its row of an Augmentation.

    A scaled image that is smaller than the crop lies anywhere in it.
    """
    scaled = use.greatest(use.floor(source * scale + 0.5), 1.0)
    ratio = source / scaled
    slack = scaled - crop
    at = use.floor((point + 0.5) / ratio)
    low = use.greatest(use.least(slack, 0.0), at - crop + 1.0 - reach)
    high = use.least(use.greatest(slack, 0.0), at + reach)
    first = low + use.floor(place * (high - low + 1.0))
    begin, stop = use.greatest(first, 0.0), use.least(first + crop, scaled)
    start, end = begin * ratio, stop * ratio
    margin = use.greatest(ratio, 1.0) + 1.0  # the triangular filter's radius, and what rounding needs
    corner = use.greatest(use.floor(start - margin), 0.0)
    decoded = use.least(use.ceil(end + margin), source) - corner
    return Window(corner, decoded, start - corner, end - corner, stop - begin, begin - first)
