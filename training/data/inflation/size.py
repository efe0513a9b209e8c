"""The noise with which variants have the mean size that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from training.data.inflation.augment import Augmenter, Pixels, draw_change

MOST_NOISE = 8.0  # grey levels
ORDINARY_NOISE = 2.0  # a camera's in daylight; where no noise gives the size
_LEAST_SAMPLES = 8
_NEAR = 0.01  # of the size: near enough
_HALVINGS = 10
_MISSED = 0.1  # of the size: worth telling


def settle_noise(
    frames: Sequence[tuple[str, Pixels]],
    mean_bytes: float,
    seed: int,
    encode: Callable[[Pixels], bytes],
    say: Callable[[str], None] = print,
) -> float:
    """The noise, standard deviation in grey levels, with which variants of `frames` have `mean_bytes` on average.

    `frames` are a sample of the base set: names and pictures (height, width, 3). `say` is told where variants are more than
    10 % larger even without noise, or smaller even with the most.
    """
    variants = range(1, 1 + -(-_LEAST_SAMPLES // len(frames)))

    def mean_with(noise: float) -> float:
        augmenter = Augmenter(seed, noise)
        sizes = [
            len(encode(augmenter.image(pixels, draw_change(seed, name, variant, pixels.shape[1], pixels.shape[0]))))
            for name, pixels in frames
            for variant in variants
        ]
        return sum(sizes) / len(sizes)

    asked = f"{mean_bytes / 1e6:.2f} MB per image are asked for"
    least, most = mean_with(0.0), mean_with(MOST_NOISE)
    if least >= mean_bytes:
        if least > (1 + _MISSED) * mean_bytes:
            say(f"{asked}, but variants of these frames have {least / 1e6:.2f} MB even without noise; they stay so")
        return 0.0
    if most <= mean_bytes:
        if most >= (1 - _MISSED) * mean_bytes:
            return MOST_NOISE
        say(
            f"{asked}, but variants of these frames have {most / 1e6:.2f} MB even with noise of {MOST_NOISE:g} grey levels; "
            f"they get an ordinary {ORDINARY_NOISE:g}"
        )
        return ORDINARY_NOISE
    low, high = 0.0, MOST_NOISE
    for _ in range(_HALVINGS):
        noise = (low + high) / 2
        size = mean_with(noise)
        if abs(size - mean_bytes) <= _NEAR * mean_bytes:
            break
        low, high = (noise, high) if size < mean_bytes else (low, noise)
    return noise
