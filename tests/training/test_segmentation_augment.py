"""Crops of scaled images, against scaling the whole image and cropping that."""

from __future__ import annotations

import numpy as np
import pytest

from training.segmentation.augment import NUMBERS, NUMPY, Ranges, augment, window

RANGES = Ranges(crop=(60, 100), scale_min=0.5, scale_max=2.0, color_aug=0.25)


def drawn(count, has_point=False, point=(0.0, 0.0), ranges=RANGES, seed=0):
    uniforms = np.random.default_rng(seed).random((count, NUMBERS))
    return augment(uniforms, np.tile(np.array(point), (count, 1)), np.full(count, has_point), ranges)


def windows(given, source, ranges=RANGES):
    """Of B images of one size: every field (B, 2)."""
    crop = np.array(ranges.crop, float)
    return window(
        np.array(source, float), crop, given.scales[:, None], given.points, given.reaches, given.places, NUMPY
    )


def is_uniform(values):
    """Kolmogorov-Smirnov on [0, 1), at a level of about 0.001."""
    values = np.sort(values)
    return np.abs(values - np.arange(len(values)) / len(values)).max() < 1.95 / np.sqrt(len(values))


def equally_often(values, count):
    """Whether 0 … count - 1 come as often as each other, within five standard deviations."""
    found, mean = np.bincount(values.astype(int), minlength=count), len(values) / count
    return len(found) == count and np.abs(found - mean).max() < 5 * np.sqrt(mean)


def test_numbers_have_the_ranges_and_the_law_they_should():
    given = drawn(4000)
    for values, low, high in (
        (given.scales, 0.5, 2.0),
        (given.hues, -90, 90),
        (given.saturations, 0.75, 1.25),
        (given.brightnesses, 0.75, 1.25),
        (given.contrasts, 0.75, 1.25),
    ):
        assert is_uniform((values - low) / (high - low))
    assert set(given.flips.tolist()) == {0, 1} and 0.45 < given.flips.mean() < 0.55


def test_without_colour_augmentation_colours_stay():
    given = drawn(10, ranges=Ranges((8, 8), 1, 1, 0.0))
    assert (given.hues == 0).all() and (given.saturations == 1).all()
    assert (given.brightnesses == 1).all() and (given.contrasts == 1).all()


@pytest.mark.parametrize("source", [(128, 256), (60, 100), (200, 30), (1024, 2048)])
def test_what_is_decoded_holds_the_window_and_lies_in_the_image(source):
    given = drawn(2000)
    found = windows(given, source)
    crop = np.array(RANGES.crop)
    assert (found.corner >= 0).all() and (found.corner + found.decoded <= source).all()
    assert (found.start >= 0).all() and (found.end <= found.decoded + 1e-9).all()
    assert (found.size >= 1).all() and (found.before >= 0).all() and (found.before + found.size <= crop).all()
    scaled = np.floor(source * given.scales[:, None] + 0.5)
    smaller = scaled <= crop
    assert np.array_equal(found.size, np.where(smaller, scaled, crop))
    assert (found.before[~smaller] == 0).all()
    np.testing.assert_allclose(found.end - found.start, found.size * source / scaled)


def test_a_crop_is_anywhere_with_the_same_chance():
    ranges = Ranges((60, 100), 1, 1, 0)
    found = windows(drawn(6000, ranges=ranges), (66, 90), ranges)
    rows = (found.corner + found.start)[:, 0]
    assert equally_often(rows, 7)
    columns = found.before[:, 1]  # the image lies in the crop
    assert equally_often(columns, 11)


@pytest.mark.parametrize("point", [(0, 0), (127, 255), (64, 128), (3, 250)])
@pytest.mark.parametrize("scales", [(0.5, 2.0), (0.3, 0.5)])
def test_a_crop_around_a_point_has_it_and_leaves_the_image_only_where_it_must(point, scales):
    ranges = Ranges((60, 100), *scales, 0)
    given = drawn(1000, True, point, ranges)
    found = windows(given, (128, 256), ranges)
    centre = np.array(point) + 0.5
    assert (found.corner + found.start <= centre).all() and (centre <= found.corner + found.end).all()
    scaled = np.floor(np.array([128, 256]) * given.scales[:, None] + 0.5)
    assert np.array_equal(found.size, np.minimum(scaled, ranges.crop))
    if point == (64, 128) and scales == (0.5, 2.0):  # with room on all sides the point may be anywhere in the crop
        place = ((centre - found.corner - found.start) / (found.end - found.start))[given.scales > 1.2]
        assert place.min() < 0.05 and place.max() > 0.95
