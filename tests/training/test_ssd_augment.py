"""Crops, flips and colours, and what they do to boxes."""

import numpy as np
import pytest

from training.ssd.augment import NUMBERS, augment


def scene(random, count):
    corners = random.uniform(0, 0.9, (count, 2))
    sizes = random.uniform(0.02, 0.5, (count, 2))
    return np.concatenate((corners, np.minimum(corners + sizes, 1)), axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def many():
    random = np.random.default_rng(0)
    boxes = [scene(random, count) for count in random.integers(1, 30, 4000)]
    labels = [np.arange(1, len(box) + 1, dtype=np.int32) for box in boxes]
    return boxes, augment(random.random((len(boxes), NUMBERS)), boxes, labels)


def test_every_image_keeps_a_box_and_boxes_stay_inside(many):
    _, done = many
    assert all(len(box) >= 1 and len(box) == len(label) for box, label in zip(done.boxes, done.labels, strict=True))
    everything = np.concatenate(done.boxes)
    assert everything.dtype == np.float32 and everything.min() >= 0 and everything.max() <= 1
    assert (everything[:, 2:] > everything[:, :2]).all()


def test_boxes_follow_crop_and_flip(many):
    boxes, done = many
    for index in range(500):
        left, top, right, bottom = done.crops[index]
        by_label = dict(zip(done.labels[index].tolist(), done.boxes[index], strict=True))
        for label, box in enumerate(boxes[index], start=1):
            centre = (box[:2] + box[2:]) / 2
            inside = left < centre[0] < right and top < centre[1] < bottom
            assert inside == (label in by_label)
            if not inside:
                continue
            wanted = (box - [left, top, left, top]) / [right - left, bottom - top, right - left, bottom - top]
            wanted = wanted.clip(0, 1)
            if done.flips[index]:
                wanted = np.array([1 - wanted[2], wanted[1], 1 - wanted[0], wanted[3]])
            assert by_label[label] == pytest.approx(wanted, abs=1e-5)


def test_crops_are_of_the_sizes_and_shapes_of_the_method(many):
    _, done = many
    sizes = done.crops[:, 2:] - done.crops[:, :2]
    whole = (sizes == 1).all(axis=1)
    assert 0.4 < whole.mean() < 0.8  # most overlaps cannot be had with many small boxes, so "no crop" wins
    width, height = sizes[~whole].T
    assert min(width.min(), height.min()) >= 0.3 - 1e-6
    assert (width / height).min() >= 0.5 - 1e-5 and (width / height).max() <= 2 + 1e-5
    assert done.crops.min() >= 0 and done.crops.max() <= 1 + 1e-6


def test_flips_and_colours_are_drawn_from_their_ranges(many):
    _, done = many
    assert set(done.flips.tolist()) == {0, 1} and 0.45 < done.flips.mean() < 0.55
    ranges = [(done.hues, -0.5, 0.5), (done.saturations, 0.5, 1.5), (done.brightnesses, 0.875, 1.125)]
    for values, low, high in [*ranges, (done.contrasts, 0.5, 1.5)]:
        assert low <= values.min() < low + 0.02 * (high - low) and high - 0.02 * (high - low) < values.max() <= high


@pytest.mark.parametrize(("choice", "overlap"), list(enumerate([0.0, 0.1, 0.3, 0.5, 0.7])))
def test_an_overlap_that_was_drawn_holds_for_every_box(choice, overlap):
    uniforms = np.random.default_rng(1).random((2000, NUMBERS))
    uniforms[:, 5::5] = (choice + 0.5) / 7  # every attempt draws this overlap
    boxes = [np.array([[0.2, 0.2, 0.8, 0.8], [0.1, 0.3, 0.7, 0.9]], np.float32)] * 2000
    done = augment(uniforms, boxes, [np.array([1, 2], np.int32)] * 2000)
    whole = (done.crops == [0, 0, 1, 1]).all(axis=1)
    crops = done.crops[~whole]
    assert len(crops) > 20
    for box in boxes[0]:
        sides = np.minimum(crops[:, 2:], box[2:]) - np.maximum(crops[:, :2], box[:2])
        common = sides.clip(0).prod(axis=1)
        iou = common / ((crops[:, 2:] - crops[:, :2]).prod(axis=1) + 0.36 - common)
        assert iou.min() >= overlap - 1e-5
