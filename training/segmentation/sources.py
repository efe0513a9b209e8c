"""The pairs of image and mask to prepare: where a frame has polygons only, its mask is to be drawn from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from training.data.conversion.cityscapes import Frame, Split
from training.segmentation.dataset import PARTS, SegmentationSet

_MASK_END = "_gtFine_labelIds.png"


@dataclass(frozen=True)
class SourcePair:
    """An image, its `*_labelIds.png` or else `*_polygons.json`, and where in a prepared set image and mask go."""

    image: Path
    truth: Path
    image_name: str
    mask_name: str

    @property
    def has_polygons(self) -> bool:
        """Whether `truth` is polygons, and the mask is to be drawn."""
        return self.truth.suffix.lower() == ".json"

    @property
    def shard(self) -> str:
        """The city."""
        return self.image_name.split("/")[2]


def source_pairs(root: Path, name: str, split: Split, say: Callable[[str], None]) -> tuple[list[SourcePair], str]:
    """The pairs of the split called `name`, sorted, and a phrase about what was left out, else "".

    `split` is how the folder `root` was read, `truth` LABELS. Raises UserError where there is no pair.
    """
    drawn = [_drawn(name, frame) for frame in split.frames if frame.has_polygons]
    if drawn and len(drawn) == len(split.frames):
        return drawn, ", ".join(f"{len(paths)} {reason}" for reason, paths in split.left_out.items())
    data = SegmentationSet.open(root, name, 0, say)
    pairs = [_linked(data, index) for index in range(len(data))]
    listing = replace(data.listing, images_without_mask=max(0, data.listing.images_without_mask - len(drawn)))
    if drawn:
        say(f"{len(drawn)} images of {name} have polygons, from which their masks are drawn")
    return sorted(pairs + drawn, key=lambda pair: pair.image_name), listing.left_out()


def _linked(data: SegmentationSet, index: int) -> SourcePair:
    image, mask = data.image(index), data.mask(index)
    mask_name = f"{PARTS[1]}/{mask.relative_to(data.masks).as_posix()}"
    return SourcePair(image, mask, f"{PARTS[0]}/{data.name(index)}", mask_name)


def _drawn(split: str, frame: Frame) -> SourcePair:
    mask_name = f"{PARTS[1]}/{split}/{frame.city}/{frame.name}{_MASK_END}"
    return SourcePair(frame.image, frame.truth, f"{PARTS[0]}/{split}/{frame.file_name}", mask_name)
