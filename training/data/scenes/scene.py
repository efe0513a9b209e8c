"""Composes a street scene: labelled polygons, drawn in order, so that later ones cover earlier ones.

A pinhole camera 1.22 m above a flat road (Cityscapes' camera height): what stands `d` px below the horizon shows
d / 1.22 px per metre. Depth is therefore counted in `d`, large in front.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from training.data.scenes.shapes import Points, blob, dense, placed

WIDTH, HEIGHT = 2048, 1024  # px, as Cityscapes
_CAMERA_M = 1.22
_BORDER = 5  # px of rectification border

Colour = tuple[int, int, int]


@dataclass
class Thing:
    """A labelled polygon of whole px, its colour, and the details that are painted on it but not labelled."""

    label: str
    polygon: list[tuple[int, int]]
    colour: Colour
    details: list[tuple[list[tuple[int, int]], Colour]] = field(default_factory=list)


# label, outline, width and height in m, share of frames, most per frame, places to the side in m
_ROAD_USERS = (
    ("car", "car_back", 1.85, 1.5, 1.0, 7, (-1.8, 1.9, 4.4)),
    ("car", "car_side", 4.3, 1.5, 1.0, 5, (-5.2, 5.4)),
    ("truck", "truck", 7.0, 3.1, 0.4, 1, (-5.0, 5.2)),
    ("bus", "box", 2.6, 3.1, 0.4, 1, (-4.2, 4.6)),
    ("train", "box", 2.7, 3.6, 0.15, 1, (-3.0, 3.2)),
    ("caravan", "box", 2.3, 2.6, 0.1, 1, (5.3,)),
    ("trailer", "box", 2.0, 1.4, 0.1, 1, (-5.3,)),
    ("person", "person", 0.62, 1.75, 1.0, 9, (-9.5, -7.5, 7.4, 9.6)),
    ("rider", "bicycle", 1.75, 1.1, 0.9, 3, (-4.0, 4.2, 2.6)),
    ("rider", "bicycle", 2.1, 1.15, 0.3, 1, (-2.2, 2.4)),
    ("bicycle", "bicycle", 1.75, 1.1, 0.8, 4, (-6.8, 6.8)),
    ("cargroup", "car_row", 9.0, 1.5, 1.0, 1, (-6.0, 6.2)),
    ("persongroup", "crowd", 3.2, 1.75, 0.7, 1, (-8.5, 8.6)),
)
_NEAR, _FAR = 250.0, 12.0  # px below the horizon


class Street:
    """The camera's view of one street: places in metres to pixels."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.centre_x = WIDTH / 2 + rng.uniform(-120, 120)
        self.horizon_y = HEIGHT * 0.42 + rng.uniform(-25, 25)

    def point(self, side_m: Points | float, d: Points | float, height_m: float = 0.0) -> Points:
        """Pixels of places `side_m` to the right of the camera, at depth `d`, `height_m` above the road."""
        scale = np.asarray(d) / _CAMERA_M
        x, y = self.centre_x + side_m * scale, self.horizon_y + d - height_m * scale
        return np.stack(np.broadcast_arrays(x, y), axis=-1).reshape(-1, 2)

    def strip(self, left_m: float, right_m: float) -> Points:
        """The part of the ground between two distances to the side."""
        d = np.geomspace(2, HEIGHT, 60)
        return np.concatenate((self.point(left_m, d), self.point(right_m, d[::-1])))

    def facade(self, side_m: float, near: float, far: float, low_m: float, high_m: float) -> Points:
        """A piece of wall along the street."""
        corners = np.concatenate(
            [self.point(side_m, d, h) for d, h in ((near, low_m), (near, high_m), (far, high_m), (far, low_m))]
        )
        return dense(corners, 24)

    def colour(self, base: Colour, spread: int = 18) -> Colour:
        red, green, blue = (int(c) for c in np.clip(np.array(base) + self.rng.integers(-spread, spread + 1, 3), 4, 250))
        return red, green, blue


def whole(points: Points) -> list[tuple[int, int]]:
    """Whole pixels inside the picture."""
    inside = np.clip(np.rint(points), 0, (WIDTH - 1, HEIGHT - 1)).astype(int)
    return [(int(x), int(y)) for x, y in inside]


def compose(rng: np.random.Generator) -> list[Thing]:
    """The things of one scene in the order in which they are drawn."""
    street = Street(rng)
    things = [_rectangle("sky", 0, 0, WIDTH - 1, int(street.horizon_y) + 4, street.colour((178, 190, 204)))]
    things += [*_buildings(street), *_ground(street), *_greens(street), *_poles(street), *_road_users(street)]
    return [*things, *_camera_borders(street)]


def _rectangle(label: str, left: int, top: int, right: int, bottom: int, colour: Colour) -> Thing:
    return Thing(label, [(left, top), (right, top), (right, bottom), (left, bottom)], colour)


def _buildings(street: Street) -> list[Thing]:
    rng, buildings = street.rng, []
    for side_m in (-12.5, 12.5):
        edges = np.geomspace(3, 700, rng.integers(7, 11))
        for far, near in pairwise(edges):
            high_m, colour = rng.uniform(9, 20), street.colour((126, 114, 102), 22)
            building = Thing("building", whole(street.facade(side_m, near, far, 0, high_m)), colour)
            dark: Colour = tuple(c // 2 for c in colour)  # type: ignore[assignment]
            columns = np.linspace(near, far, 7)
            for floor_m in np.arange(1.2, high_m - 2, 3.2):
                for start, end in pairwise(columns):
                    window = street.facade(
                        side_m, start - (start - end) * 0.25, end + (start - end) * 0.25, floor_m, floor_m + 1.7
                    )
                    building.details.append((whole(window), dark))
            buildings.append(building)
    return buildings


def _ground(street: Street) -> list[Thing]:
    grey = street.colour((98, 96, 100), 12)
    road = Thing("road", whole(street.strip(-6.3, 6.3)), grey)
    for d in np.geomspace(8, HEIGHT, 14)[:-1]:
        mark = np.concatenate([street.point(0.08 * s, d * f) for s, f in ((-1, 1), (1, 1), (1, 1.14), (-1, 1.14))])
        road.details.append((whole(mark), (206, 206, 204)))
    walks = [
        Thing("sidewalk", whole(street.strip(*sides)), street.colour((142, 132, 128)))
        for sides in ((-12.5, -6.3), (6.3, 12.5))
    ]
    return [*walks, road]


def _greens(street: Street) -> list[Thing]:
    rng, greens = street.rng, []
    for d in np.sort(rng.uniform(14, 200, rng.integers(4, 9))):
        side_m, radius_m = rng.choice((-10.5, 10.5)), rng.uniform(1.8, 3.0)
        scale = d / _CAMERA_M
        x, y = street.point(side_m, d, rng.uniform(4.5, 6.0))[0]
        greens.append(
            Thing("static", whole(placed("box", x, street.horizon_y + d, 0.4 * scale, 4.0 * scale)), (84, 66, 52))
        )
        crown = blob(rng, x, y, radius_m * scale, radius_m * scale)
        greens.append(Thing("vegetation", whole(crown), street.colour((62, 86, 44))))
    return greens


def _poles(street: Street) -> list[Thing]:
    rng, poles = street.rng, []
    for d in np.sort(rng.uniform(20, 230, rng.integers(3, 7))):
        side_m, scale, ground_y = rng.choice((-7.0, 7.0)), d / _CAMERA_M, street.horizon_y + d
        x = street.point(side_m, d)[0][0]
        poles.append(
            Thing("pole", whole(placed("box", x, ground_y, 0.14 * scale, 5.0 * scale)), street.colour((112, 112, 112)))
        )
        label, colour = (("traffic sign", (168, 44, 40)), ("traffic light", (40, 44, 40)))[rng.integers(2)]
        poles.append(Thing(label, whole(placed("box", x, ground_y - 3.0 * scale, 0.6 * scale, 0.8 * scale)), colour))
    return poles


def _road_users(street: Street) -> list[Thing]:
    rng = street.rng
    placed_things: list[tuple[float, list[Thing]]] = []
    for label, outline, width_m, height_m, share, most, sides_m in _ROAD_USERS:
        if rng.random() >= share:
            continue
        for _ in range(rng.integers(1, most + 1)):
            far = label.endswith("group")
            d = float(np.exp(rng.uniform(np.log(_FAR), np.log(45 if far else _NEAR))))
            side_m = rng.choice(sides_m) + rng.uniform(-0.5, 0.5)
            size = rng.uniform(0.9, 1.1) * d / _CAMERA_M
            x, y = street.point(side_m, d)[0]
            if x < 0 or x > WIDTH:
                continue
            user = placed(outline, x, y, width_m * size, height_m * size, bool(rng.random() < 0.5))
            placed_things.append((d, _road_user(street, label, user, x, y, size)))
    return [thing for _, things in sorted(placed_things, key=lambda pair: pair[0]) for thing in things]


def _road_user(street: Street, label: str, outline: Points, x: float, y: float, size: float) -> list[Thing]:
    base = {"person": (84, 68, 72), "rider": (60, 62, 78), "bicycle": (52, 52, 58)}.get(label, (108, 104, 110))
    colour = street.colour(base, 70 if base[0] > 100 else 36)
    if label == "rider":
        rider = placed("rider", x, y - 0.45 * size, 0.75 * size, 1.3 * size)
        mount = "motorcycle" if np.ptp(outline[:, 0]) > 2.0 * size else "bicycle"
        return [Thing(mount, whole(dense(outline)), (48, 46, 52)), Thing("rider", whole(dense(rider)), colour)]
    thing = Thing(label, whole(dense(outline)), colour)
    left, top = outline.min(axis=0)
    width, height = np.ptp(outline, axis=0)
    if label in ("person", "persongroup"):
        thing.details.append((_part(left, top, width, height, 0.36, 0, 0.64, 0.13), street.colour((190, 150, 128))))
    elif label != "bicycle":
        thing.details.append((_part(left, top, width, height, 0.22, 0.1, 0.78, 0.42), (38, 44, 52)))
    if label == "car" and width > 40:
        plate = _part(left, top, width, height, 0.42, 0.66, 0.58, 0.74)
        return [thing, Thing("license plate", plate, (214, 214, 208))]
    return [thing]


def _part(
    left: float, top: float, width: float, height: float, x0: float, y0: float, x1: float, y1: float
) -> list[tuple[int, int]]:
    corners = np.array(((x0, y0), (x1, y0), (x1, y1), (x0, y1)))
    return whole(corners * (width, height) + (left, top))


def _camera_borders(street: Street) -> list[Thing]:
    x = np.linspace(0, WIDTH - 1, 40)
    bonnet = HEIGHT * 0.9 - 38 * np.sin(np.pi * x / WIDTH) + street.rng.uniform(-8, 8)
    ego = np.concatenate((np.stack((x, bonnet), axis=1), [(WIDTH - 1, HEIGHT - 1), (0, HEIGHT - 1)]))
    right, bottom = WIDTH - 1, HEIGHT - 1
    return [
        Thing("ego vehicle", whole(ego), (34, 36, 40)),
        _rectangle("rectification border", 0, 0, _BORDER, bottom, (0, 0, 0)),
        _rectangle("rectification border", right - _BORDER, 0, right, bottom, (0, 0, 0)),
        _rectangle("out of roi", 0, 0, right, _BORDER, (0, 0, 0)),
        _rectangle("out of roi", 0, bottom - _BORDER, right, bottom, (0, 0, 0)),
    ]
