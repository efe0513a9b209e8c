"""What variants will be like, from a few of them: the noise that brings them to the mean size, and that size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from training.data.inflation.augment import Augmenter, draw_change
from training.data.inflation.augmented import decode_picture
from training.data.inflation.base import BaseSet, Frame, mean_bytes_of, read_source
from training.data.inflation.encode import encode_jpeg, encode_png
from training.data.inflation.labels import Labels
from training.data.inflation.settings import Settings
from training.data.inflation.size import settle_noise

_FRAMES = 8
_MB = 1e6


class Expected(NamedTuple):
    """`noise` in grey levels; `image_bytes` and `label_bytes` are means of variants."""

    noise: float
    image_bytes: float
    label_bytes: float


def expect(
    base: BaseSet, labels: Labels, frames: Sequence[Frame], settings: Settings, say: Callable[[str], None]
) -> Expected:
    """Settles the noise and measures variants of a few frames. `say` gets a sentence where the size cannot be reached."""
    count = min(_FRAMES, len(frames))
    sample = [frames[number * len(frames) // count] for number in range(count)]
    pictures = [
        (frame.name, decode_picture(read_source(base, frame.image), base.root / frame.image.path)) for frame in sample
    ]
    changes = [draw_change(settings.seed, name, 1, pixels.shape[1], pixels.shape[0]) for name, pixels in pictures]
    label_bytes = labels.bytes_per_image(base, sample, changes)
    noise = 0.0
    if settings.mean_mb is not None:
        picture_bytes = settings.mean_mb * _MB - (label_bytes if labels.masks else 0.0)
        noise = settle_noise(pictures, _without(frames, picture_bytes, settings.factor), settings.seed, encode_png, say)
    encode = encode_png if settings.format == "png" else encode_jpeg
    augmenter = Augmenter(settings.seed, noise)
    sizes = [
        len(encode(augmenter.image(pixels, change))) for (_, pixels), change in zip(pictures, changes, strict=True)
    ]
    return Expected(noise, sum(sizes) / len(sizes), label_bytes)


def _without(frames: Sequence[Frame], mean_bytes: float, factor: int) -> float:
    """The mean size that the other variants must have, where variant 0 is the frame itself."""
    return (mean_bytes * factor - mean_bytes_of(frames)) / (factor - 1) if factor > 1 else mean_bytes
