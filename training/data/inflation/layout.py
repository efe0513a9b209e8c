"""How the files of an inflated set are named: shards of one frame's variants, each in folders of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_VARIANTS_PER_SHARD = 1000
_LEAST_DIGITS = 4
_IMAGE_END = "_leftImg8bit"


@dataclass(frozen=True)
class Shard:
    """Variants `first` to `end` - 1 of frame number `frame` of the base set, and the name of their folders."""

    name: str
    frame: int
    first: int
    end: int

    @property
    def images(self) -> int:
        return self.end - self.first


def shards_of(frames: Sequence[str], factor: int) -> list[Shard]:
    """The shards of the frames of these names, `factor` variants of each, in the order of frames and variants."""
    firsts = range(0, factor, _VARIANTS_PER_SHARD)
    return [
        Shard(
            name=frame if len(firsts) == 1 else variant_name(frame, first, factor),
            frame=number,
            first=first,
            end=min(first + _VARIANTS_PER_SHARD, factor),
        )
        for number, frame in enumerate(frames)
        for first in firsts
    ]


def variant_name(frame: str, variant: int, factor: int) -> str:
    """`aachen_000000_000019_v0042`: a variant's number has as many digits for all, so that names sort by it."""
    digits = max(_LEAST_DIGITS, len(str(factor - 1)))
    return f"{frame}_v{variant:0{digits}}"


def frame_name(file_name: str) -> str:
    """`aachen_000000_000019` of `aachen/aachen_000000_000019_leftImg8bit.png`, and of any other picture its stem."""
    stem = file_name.rpartition("/")[2].rpartition(".")[0]
    return stem.removesuffix(_IMAGE_END)


def image_name(variant: str, suffix: str) -> str:
    """The file name of a variant's picture; `suffix` is `.png` or `.jpg`."""
    return f"{variant}{_IMAGE_END}{suffix}"
