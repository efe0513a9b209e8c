"""Which part of a frame fills a variant, and where each of the variant's pixels lies in the frame."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Geometry:
    """The part of a frame, in whole px, that fills the whole variant, which is then mirrored if `flip`."""

    left: int
    top: int
    width: int
    height: int
    flip: bool

    def columns(self, width: int) -> NDArray[np.intp]:
        """(width,) the frame's column that each column of a variant of `width` px takes its labels from."""
        columns = self.left + _nearest(self.width, width)
        return columns[::-1] if self.flip else columns

    def rows(self, height: int) -> NDArray[np.intp]:
        """(height,) the frame's row that each row of a variant of `height` px takes its labels from."""
        return self.top + _nearest(self.height, height)


def move_mask(mask: NDArray[np.uint8], geometry: Geometry) -> NDArray[np.uint8]:
    """The variant (height, width) of a frame's label image (height, width): each pixel its nearest label."""
    height, width = mask.shape
    wide = np.take(mask, geometry.columns(width), axis=1)
    return np.take(wide, geometry.rows(height), axis=0)


def _nearest(source: int, target: int) -> NDArray[np.intp]:
    """The source pixel that holds the centre of each target pixel."""
    return (2 * np.arange(target) + 1) * source // (2 * target)
