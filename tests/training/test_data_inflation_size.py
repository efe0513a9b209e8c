"""The noise that gives variants a mean size."""

from __future__ import annotations

import re

import numpy as np
import pytest

from training.data.inflation.augment import Augmenter, draw_change
from training.data.inflation.encode import encode_png
from training.data.inflation.size import MOST_NOISE, ORDINARY_NOISE, settle_noise

WIDTH, HEIGHT = 256, 128
SEED = 4


@pytest.fixture(scope="module")
def frames() -> list[tuple[str, np.ndarray]]:
    random = np.random.Generator(np.random.Philox(key=3))
    blocks = random.integers(0, 256, (4, HEIGHT // 16, WIDTH // 16, 3), dtype=np.uint8)
    return [(f"ulm_{i:06d}_000019", block.repeat(16, 0).repeat(16, 1)) for i, block in enumerate(blocks)]


def test_variants_have_the_mean_size_asked_for(frames: list[tuple[str, np.ndarray]]) -> None:
    wanted, said = 45_000, []
    noise = settle_noise(frames, wanted, SEED, encode_png, said.append)
    assert noise == settle_noise(frames, wanted, SEED, encode_png) and not said
    augmenter = Augmenter(SEED, noise)
    sizes = [
        len(encode_png(augmenter.image(pixels, draw_change(SEED, name, variant, WIDTH, HEIGHT))))
        for name, pixels in frames
        for variant in range(100, 110)
    ]
    assert np.mean(sizes) == pytest.approx(wanted, rel=0.1)


@pytest.mark.parametrize(
    ("mean_bytes", "noise", "sentence"),
    [
        (
            1_000,
            0.0,
            "0.00 MB per image are asked for, but variants of these frames have 0.0[0-9] MB even without noise",
        ),
        (
            2_880_000,
            ORDINARY_NOISE,
            "2.88 MB per image are asked for, .* MB even with noise of 8 grey levels; they get",
        ),
    ],
)
def test_a_size_out_of_reach_is_told(
    frames: list[tuple[str, np.ndarray]], mean_bytes: float, noise: float, sentence: str
) -> None:
    said: list[str] = []
    assert settle_noise(frames[:1], mean_bytes, SEED, encode_png, said.append) == noise <= MOST_NOISE
    (told,) = said
    assert re.match(sentence, told)
