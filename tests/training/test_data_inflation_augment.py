"""Variants: the same on any machine, labels that stay labels, and pictures, masks and boxes that move alike."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocotools import mask as rle

from training.data.inflation.augment import Augmenter, Change, Tone, draw_change
from training.data.inflation.boxes import Objects
from training.data.inflation.encode import encode_png
from training.data.inflation.geometry import Geometry, move_mask
from training.data.inflation.noise import NOISE_VALUES, Noise

ROOT = Path(__file__).resolve().parents[2]
PLAIN = Tone(gain=64, bend=0, offset=0)
SIDES = st.integers(1, 70)


@pytest.fixture(scope="module")
def silent() -> Augmenter:
    return Augmenter(0, 0.0)


def picture(width: int, height: int) -> np.ndarray:
    return np.random.Generator(np.random.Philox(key=1)).integers(0, 256, (height, width, 3), dtype=np.uint8)


def unchanged(geometry: Geometry) -> Change:
    """A change of geometry alone."""
    return Change(geometry, (PLAIN, PLAIN, PLAIN), noise_at=0)


@st.composite
def geometries(draw: st.DrawFn) -> tuple[int, int, Geometry]:
    width, height = draw(SIDES), draw(SIDES)
    change = draw_change(draw(st.integers(0, 2**40)), "ulm_000000_000019", draw(st.integers(1, 1000)), width, height)
    return width, height, change.geometry


def digest() -> str:
    """Of what small variants are made with, look like and are as files."""
    change = draw_change(3, "aachen_000000_000019", 42, 96, 48)
    augmenter = Augmenter(3, 2.5)
    found = hashlib.sha256()
    for variant in range(1, 5):
        change = draw_change(3, "aachen_000000_000019", variant, 97, 48)
        labels = move_mask(picture(97, 48)[..., 0] // 8, change.geometry)
        image = augmenter.image(picture(97, 48), change)
        for part in (repr(change).encode(), labels.tobytes(), image.tobytes(), encode_png(image), encode_png(labels)):
            found.update(part)
    return found.hexdigest()


def test_a_seed_gives_these_bytes_in_any_process() -> None:
    known = "3166d42151c2d7f931a8e189b6b6bbe5fffdd9fc2d8a9b12f5a89170bcdd992a"
    assert digest() == known
    # Three threads, and torch without the processor's vector instructions.
    code = "import sys; sys.path[:0] = sys.argv[1:]; from test_data_inflation_augment import digest; print(digest())"
    other = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(Path(__file__).parent)],
        env={**os.environ, "OMP_NUM_THREADS": "3", "ATEN_CPU_CAPABILITY": "default"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == known


def test_a_change_follows_from_seed_name_and_variant() -> None:
    drawn = {
        draw_change(seed, name, variant, 2048, 1024)
        for seed in (0, 1)
        for name in ("aachen_000000_000019", "aachen_000001_000019")
        for variant in range(1, 200)
    }
    assert len(drawn) == 2 * 2 * 199
    assert draw_change(1, "a", 2, 2048, 1024) == draw_change(1, "a", 2, 2048, 1024)
    assert 0.4 < np.mean([change.geometry.flip for change in drawn]) < 0.6
    assert len({change.noise_at for change in drawn}) > 700


@given(geometries())
def test_the_part_lies_in_the_frame_and_has_its_shape(drawn: tuple[int, int, Geometry]) -> None:
    width, height, part = drawn
    assert 0 <= part.left <= width - part.width and 0 <= part.top <= height - part.height
    assert 0.8 * height - 0.5 <= part.height <= height and part.height >= 1
    assert abs(part.width - part.height * width / height) <= 0.5 or part.width in (1, width)


def test_a_whole_unmirrored_frame_stays_what_it_is(silent: Augmenter) -> None:
    pixels = picture(33, 17)
    assert (silent.image(pixels, unchanged(Geometry(0, 0, 33, 17, False))) == pixels).all()


@settings(max_examples=50)
@given(geometries())
def test_a_mirrored_variant_is_that_of_the_mirrored_frame(silent: Augmenter, drawn: tuple[int, int, Geometry]) -> None:
    width, height, part = drawn
    pixels, mirrored = picture(width, height), picture(width, height)[:, ::-1].copy()
    there = replace(part, flip=True)
    same = replace(part, flip=False, left=width - part.left - part.width)
    assert (silent.image(pixels, unchanged(there)) == silent.image(mirrored, unchanged(same))).all()
    whole = Geometry(0, 0, width, height, flip=True)
    assert (silent.image(pixels, unchanged(whole)) == mirrored).all()
    assert (move_mask(pixels[..., 0], whole) == mirrored[..., 0]).all()


@given(geometries())
def test_a_mask_has_no_labels_but_its_own(drawn: tuple[int, int, Geometry]) -> None:
    width, height, part = drawn
    labels = picture(width, height)[..., 1] // 32 * 7
    moved = move_mask(labels, part)
    seen = labels[part.top : part.top + part.height, part.left : part.left + part.width]
    assert moved.shape == labels.shape and moved.dtype == np.uint8
    assert set(np.unique(moved)) == set(np.unique(seen))


@settings(max_examples=200)
@given(geometries(), st.data())
def test_picture_mask_and_box_of_a_rectangle_move_alike(
    silent: Augmenter, drawn: tuple[int, int, Geometry], data: st.DataObject
) -> None:
    width, height, part = drawn
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    right, bottom = data.draw(st.integers(left + 1, width)), data.draw(st.integers(top + 1, height))
    labels = np.zeros((height, width), np.uint8)
    labels[top:bottom, left:right] = 26
    pixels = np.full((height, width, 3), (10, 200, 90), np.uint8)
    pixels[labels == 26] = (240, 20, 30)
    segmentation = rle.encode(np.asfortranarray(labels // 26))
    annotation = {"id": 1, "image_id": 1, "category_id": 26, "iscrowd": 0, "segmentation": segmentation}

    mask = move_mask(labels, part)
    boxes = [moved["bbox"] for moved in Objects([annotation], width, height).moved(part)]
    image = silent.image(pixels, unchanged(part))
    assert boxes == extent(mask == 26)
    # Where the mask has the label, each direction has at least half of its colour; a quarter reaches a pixel further at most.
    coloured = (image[..., 0] - 10.0) / 230
    assert (coloured[mask == 26] > 0.24).all() and (coloured[mask == 0] < 0.51).all()
    assert len(boxes) == len(extent(coloured > 0.24))
    for box, seen in zip(boxes, extent(coloured > 0.24), strict=True):
        outside = [box[0] - seen[0], box[1] - seen[1], sum(seen[::2]) - sum(box[::2]), sum(seen[1::2]) - sum(box[1::2])]
        assert set(outside) <= {0, 1}


def extent(inside: np.ndarray) -> list[list[int]]:
    """The box that the true pixels just fill, or none."""
    rows, columns = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
    if not rows.size:
        return []
    return [[int(v) for v in (columns[0], rows[0], np.ptp(columns) + 1, np.ptp(rows) + 1)]]


def test_colours_change_by_channel_and_stay_in_range(silent: Augmenter) -> None:
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2)
    tones = (Tone(64, 0, -20 * 64), Tone(79, 16, 2000), Tone(50, -16, 0))
    made = silent.image(ramp, Change(Geometry(0, 0, 256, 1, False), tones, 0))[0].astype(int)
    x = np.arange(256)
    for channel, tone in enumerate(tones):
        wanted = (tone.gain * x + tone.bend * x * (255 - x) / 256 + tone.offset) / 64
        assert np.abs(made[:, channel] - wanted.clip(0, 255)).max() <= 1
        assert (np.diff(made[:, channel]) >= 0).all()


def test_noise_has_the_deviation_asked_for_and_saturates() -> None:
    augmenter = Augmenter(5, 4.0)
    whole = Geometry(0, 0, 256, 128, False)
    for grey in (0, 128, 255):
        flat = np.full((128, 256, 3), grey, np.uint8)
        made = augmenter.image(flat, unchanged(whole)).astype(int) - grey
        if grey == 128:
            assert np.std(made) == pytest.approx(4.0, rel=0.02) and abs(np.mean(made)) < 0.1
        else:
            assert np.abs(made).max() < 25 and 0.3 < np.mean(made == 0) < 0.7
    other = augmenter.image(flat, replace(unchanged(whole), noise_at=12345))
    assert np.mean(other != augmenter.image(flat, unchanged(whole))) > 0.3


def test_noise_of_a_picture_does_not_repeat_and_goes_on_at_the_rings_end() -> None:
    noise = Noise(0, 3.0)
    near_end = noise.at(NOISE_VALUES - 3, 9)
    assert near_end.tolist() == [*noise.at(NOISE_VALUES - 3, 3), *noise.at(0, 6)]
    lines = noise.at(0, 1 << 20).reshape(-1, 256)
    assert len(np.unique(lines, axis=0)) == len(lines)
    flat = np.full((64, 256, 3), 128, np.uint8)
    augmenter = Augmenter(0, 3.0)
    sizes = [
        len(
            encode_png(augmenter.image(np.tile(flat, (times, 1, 1)), unchanged(Geometry(0, 0, 256, 64 * times, False))))
        )
        for times in (1, 4)
    ]
    assert sizes[1] / sizes[0] == pytest.approx(4, rel=0.02)
