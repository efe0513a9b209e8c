"""Outlines in a unit box, x to the right and y down, drawn for this project, and their placing in a picture."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]

_CAR_BACK = [
    (0.04, 1),
    (0, 0.6),
    (0.1, 0.45),
    (0.2, 0.06),
    (0.3, 0),
    (0.7, 0),
    (0.8, 0.06),
    (0.9, 0.45),
    (1, 0.6),
    (0.96, 1),
]
_CAR_SIDE = [
    (0.02, 0.86), (0, 0.55), (0.14, 0.44), (0.3, 0.06), (0.38, 0), (0.66, 0), (0.82, 0.4), (0.97, 0.5), (1, 0.84),
    (0.9, 0.88), (0.86, 1), (0.76, 1), (0.7, 0.88), (0.3, 0.88), (0.25, 1), (0.15, 1), (0.11, 0.88),
]  # fmt: skip
_BOX = [(0.02, 1), (0, 0.12), (0.05, 0), (0.95, 0), (1, 0.12), (0.98, 1)]
_TRUCK = [
    (0, 0.92),
    (0, 0),
    (0.68, 0),
    (0.69, 0.2),
    (0.9, 0.22),
    (1, 0.55),
    (1, 0.92),
    (0.9, 1),
    (0.8, 0.92),
    (0.25, 1),
]
_PERSON = [
    (0.4, 0), (0.6, 0), (0.67, 0.07), (0.6, 0.15), (0.85, 0.22), (0.97, 0.52), (0.82, 0.54), (0.74, 0.38), (0.72, 0.58),
    (0.85, 1), (0.64, 1), (0.5, 0.64), (0.36, 1), (0.15, 1), (0.28, 0.58), (0.26, 0.38), (0.18, 0.54), (0.03, 0.52),
    (0.15, 0.22), (0.4, 0.15), (0.33, 0.07),
]  # fmt: skip
_RIDER = [
    (0.3, 0), (0.5, 0), (0.57, 0.1), (0.5, 0.22), (0.75, 0.34), (1, 0.55), (0.94, 0.62), (0.6, 0.5), (0.6, 0.66),
    (0.72, 1), (0.5, 1), (0.4, 0.74), (0.15, 0.7), (0.1, 0.5), (0.32, 0.22), (0.24, 0.1),
]  # fmt: skip
_BICYCLE = [
    (0, 0.72), (0.06, 0.5), (0.2, 0.42), (0.33, 0.45), (0.35, 0.12), (0.28, 0.06), (0.3, 0), (0.45, 0.02), (0.42, 0.2),
    (0.66, 0.2), (0.62, 0.04), (0.74, 0), (0.76, 0.4), (0.92, 0.46), (1, 0.68), (0.95, 0.92), (0.82, 1), (0.67, 0.9),
    (0.6, 0.72), (0.42, 0.74), (0.34, 0.93), (0.2, 1), (0.05, 0.93),
]  # fmt: skip
_CAR_ROW = [
    (0, 1), (0, 0.5), (0.06, 0.1), (0.18, 0.05), (0.25, 0.4), (0.32, 0.08), (0.46, 0), (0.52, 0.4), (0.6, 0.06),
    (0.74, 0.1), (0.8, 0.45), (0.86, 0.15), (0.96, 0.2), (1, 0.6), (1, 1),
]  # fmt: skip
_CROWD = [
    (0, 1), (0.02, 0.3), (0.08, 0.05), (0.16, 0.08), (0.2, 0.3), (0.28, 0), (0.38, 0.05), (0.42, 0.3), (0.5, 0.1),
    (0.58, 0.12), (0.63, 0.32), (0.72, 0.03), (0.8, 0.06), (0.84, 0.3), (0.92, 0.1), (1, 0.35), (0.98, 1),
]  # fmt: skip

OUTLINES = {
    "car_back": _CAR_BACK, "car_side": _CAR_SIDE, "box": _BOX, "truck": _TRUCK, "person": _PERSON, "rider": _RIDER,
    "bicycle": _BICYCLE, "car_row": _CAR_ROW, "crowd": _CROWD,
}  # fmt: skip


def placed(name: str, centre_x: float, ground_y: float, width: float, height: float, mirror: bool = False) -> Points:
    """An outline in px: `width` by `height`, standing on `ground_y` around `centre_x`."""
    points = np.array(OUTLINES[name], dtype=np.float64)
    if mirror:
        points[:, 0] = 1 - points[:, 0]
    return points * (width, height) + (centre_x - width / 2, ground_y - height)


def dense(points: Points, step_px: float = 12.0) -> Points:
    """The closed outline with further points on its edges, at most `step_px` apart."""
    pieces = []
    for start, end in zip(points, np.roll(points, -1, axis=0), strict=True):
        parts = max(1, int(np.hypot(*(end - start)) / step_px))
        pieces.append(start + (end - start) * (np.arange(parts) / parts)[:, None])
    return np.concatenate(pieces)


def blob(rng: np.random.Generator, centre_x: float, centre_y: float, radius_x: float, radius_y: float) -> Points:
    """A leafy outline of 60 points around an ellipse."""
    angles = np.linspace(0, 2 * np.pi, 60, endpoint=False)
    radii = 1 + 0.12 * np.sin(5 * angles + rng.uniform(0, 6)) + rng.uniform(-0.1, 0.1, angles.size)
    return np.stack(
        (centre_x + radius_x * radii * np.cos(angles), centre_y + radius_y * radii * np.sin(angles)), axis=1
    )
