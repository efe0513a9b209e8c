"""What happens to each training image: crop around boxes, flip, colour (SSD, Liu et al. 2016, section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

_OVERLAPS = np.array([0.0, 0.1, 0.3, 0.5, 0.7, 0.9])  # least IoU of the crop with every box; one more choice: no crop
_SIDES = (0.3, 1.0)  # of a crop, as fractions of the image's
_ASPECTS = (0.5, 2.0)
_ATTEMPTS = 24  # after that many, no crop: one image in about 1,000
_FIRST_ATTEMPTS = 6  # looked at before the others are: most images need no more
_NUMBERS_PER_ATTEMPT = 5
_WHOLE = (0.0, 0.0, 1.0, 1.0)
_FLIP, _HUE, _SATURATION, _BRIGHTNESS, _CONTRAST, _CROP = range(6)
NUMBERS = _CROP + _ATTEMPTS * _NUMBERS_PER_ATTEMPT


@dataclass(frozen=True)
class Augmentation:
    """For B images. `crops` (B, 4) ltrb as fractions of the image, `flips` (B,) 0 or 1; boxes are those of the result.

    `hues` in degrees; `saturations`, `brightnesses` and `contrasts` are factors, contrast about the grey value 128.
    """

    crops: Floats
    flips: NDArray[np.int32]
    hues: Floats
    saturations: Floats
    brightnesses: Floats
    contrasts: Floats
    boxes: list[Floats]
    labels: list[NDArray[np.int32]]


def augment(uniforms: NDArray[np.float64], boxes: list[Floats], labels: list[NDArray[np.int32]]) -> Augmentation:
    """Turns (B, NUMBERS) uniforms into augmentations of images with (k, 4) ltrb boxes and (k,) labels, k at least 1."""
    crops = _crops(uniforms[:, _CROP:], boxes)
    flips = (uniforms[:, _FLIP] < 0.5).astype(np.int32)
    image = _image_of(boxes)
    each_box = np.concatenate(boxes)
    inside = _centres_inside(each_box, crops[image])
    image = image[inside]
    moved = _cropped(each_box[inside], crops[image])
    moved = np.where(flips[image, None] == 1, _flipped(moved), moved)
    kept_labels = np.concatenate(labels)[inside]
    ends = np.cumsum(np.bincount(image, minlength=len(boxes))).tolist()
    parts = [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]
    return Augmentation(
        crops=crops,
        flips=flips,
        hues=_scaled(uniforms[:, _HUE], -0.5, 0.5).astype(np.float32),
        saturations=_scaled(uniforms[:, _SATURATION], 0.5, 1.5).astype(np.float32),
        brightnesses=_scaled(uniforms[:, _BRIGHTNESS], 0.875, 1.125).astype(np.float32),
        contrasts=_scaled(uniforms[:, _CONTRAST], 0.5, 1.5).astype(np.float32),
        boxes=[moved[part] for part in parts],
        labels=[kept_labels[part] for part in parts],
    )


def _crops(uniforms: NDArray[np.float64], boxes: list[Floats]) -> Floats:
    """(B, 4): the first of each image's attempts that keeps a box's centre and overlaps every box as much as drawn."""
    numbers = uniforms.reshape(len(boxes), _ATTEMPTS, _NUMBERS_PER_ATTEMPT)
    found = np.tile(_WHOLE, (len(boxes), 1)).astype(np.float32)
    left = np.arange(len(boxes))
    for tried in (slice(0, _FIRST_ATTEMPTS), slice(_FIRST_ATTEMPTS, _ATTEMPTS)):
        windows, good = _attempts(numbers[left, tried], [boxes[image] for image in left])
        hit = good.any(axis=1)
        found[left[hit]] = windows[hit, good[hit].argmax(axis=1)]
        left = left[~hit]
        if not left.size:
            break
    return found


def _attempts(numbers: NDArray[np.float64], boxes: list[Floats]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The windows (images, attempts, 4) that (images, attempts, 5) uniforms stand for, and which of them will do."""
    option, width, height, left, top = (numbers[:, :, number] for number in range(_NUMBERS_PER_ATTEMPT))
    choice = (option * (len(_OVERLAPS) + 1)).astype(np.int64)
    whole = choice == len(_OVERLAPS)
    width, height = _scaled(width, *_SIDES), _scaled(height, *_SIDES)
    left, top = left * (1 - width), top * (1 - height)
    windows = np.stack((left, top, left + width, top + height), axis=2)
    windows[whole] = _WHOLE

    image = _image_of(boxes)
    starts = np.searchsorted(image, np.arange(len(boxes)))
    each_box = np.concatenate(boxes)[:, None, :]  # (all boxes, 1, 4) against (all boxes, attempts, 4)
    each_window = windows[image]
    overlaps = _iou(each_box, each_window) >= np.append(_OVERLAPS, 0.0)[choice][image]
    enough = np.logical_and.reduceat(overlaps, starts, axis=0)
    some = np.logical_or.reduceat(_centres_inside(each_box, each_window), starts, axis=0)
    aspect = width / height
    return windows, whole | (enough & some & (aspect >= _ASPECTS[0]) & (aspect <= _ASPECTS[1]))


def _image_of(boxes: list[Floats]) -> NDArray[np.int64]:
    """For all boxes, one image's after the other's: the number of their image."""
    return np.repeat(np.arange(len(boxes)), [len(box) for box in boxes])


def _iou(boxes: NDArray[np.floating], windows: NDArray[np.floating]) -> NDArray[np.floating]:
    (left, top, right, bottom), (w_left, w_top, w_right, w_bottom) = _sides(boxes), _sides(windows)
    width = (np.minimum(right, w_right) - np.maximum(left, w_left)).clip(min=0)
    common = width * (np.minimum(bottom, w_bottom) - np.maximum(top, w_top)).clip(min=0)
    return common / ((right - left) * (bottom - top) + (w_right - w_left) * (w_bottom - w_top) - common)


def _centres_inside(boxes: NDArray[np.floating], windows: NDArray[np.floating]) -> NDArray[np.bool_]:
    (left, top, right, bottom), (w_left, w_top, w_right, w_bottom) = _sides(boxes), _sides(windows)
    x, y = (left + right) / 2, (top + bottom) / 2
    inside: NDArray[np.bool_] = (x > w_left) & (y > w_top) & (x < w_right) & (y < w_bottom)
    return inside


def _sides(boxes: NDArray[np.floating]) -> tuple[NDArray[np.floating], ...]:
    """The (..., 4) boxes' left, top, right and bottom, each by itself: numpy is slow at an axis of four."""
    return boxes[..., 0], boxes[..., 1], boxes[..., 2], boxes[..., 3]


def _cropped(boxes: Floats, crops: Floats) -> Floats:
    corners, sizes = crops[:, :2], crops[:, 2:] - crops[:, :2]
    return ((boxes - np.tile(corners, 2)) / np.tile(sizes, 2)).clip(0, 1).astype(np.float32)


def _flipped(boxes: Floats) -> Floats:
    left, top, right, bottom = boxes.T
    return np.stack((1 - right, top, 1 - left, bottom), axis=1)


def _scaled(uniform: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    return low + (high - low) * uniform
