"""Small hand-made frames in Cityscapes' layout, whose ground truth cityscapesScripts draws from polygons."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cityscapesscripts.preparation.json2instanceImg import json2instanceImg
from cityscapesscripts.preparation.json2labelImg import json2labelImg
from PIL import Image
from pycocotools import mask

WIDTH, HEIGHT = 96, 48
CATEGORIES = [24, 25, 26, 27, 28, 31, 32, 33]
ALL_KINDS = ("polygons", "labelIds", "instanceIds")
Object = tuple[str, list[tuple[float, float]]]


def box(label: str, left: float, top: float, width: float, height: float) -> Object:
    """A rectangle of width x height px."""
    right, bottom = left + width - 1, top + height - 1
    return label, [(left, top), (right, top), (right, bottom), (left, bottom)]


# Later objects cover earlier ones.
NASTY: dict[str, list[Object]] = {
    "cut_in_pieces": [box("car", 4, 4, 60, 20), box("pole", 20, 0, 3, 40), box("person", 40, 0, 4, 48)],
    "with_holes": [box("bus", 2, 2, 40, 40), box("sky", 8, 8, 9, 9), box("rider", 20, 20, 5, 5), box("sky", 21, 22, 1, 1)],
    "at_the_borders": [box("truck", -20, -9, 60, 30), box("train", 80, 30, 90, 90), box("car", 0, 47, 96, 1)],
    "whole_frame": [box("car", 0, 0, 96, 48)],
    "single_pixels": [box("person", 95, 47, 1, 1), box("person", 0, 0, 1, 1), box("bicycle", 50, 20, 1, 1)],
    "slanted": [("motorcycle", [(10, 40), (45.5, 3.2), (80, 40), (44, 20)]), ("car", [(70, 2), (95, 9), (60, 30)])],
    "groups": [box("cargroup", 0, 0, 30, 20), box("cargroup", 40, 0, 30, 20), box("car", 10, 5, 5, 5),
               box("bicyclegroup", 0, 30, 96, 9)],
    "ignored": [box("caravan", 0, 0, 20, 20), box("trailer", 30, 0, 20, 20), box("license plate", 60, 0, 9, 9),
                box("car", 60, 20, 9, 9)],
    "covered": [box("car", 5, 5, 10, 10), box("road", 0, 0, 96, 48), box("person", 30, 10, 4, 4)],
    "a_crowd_of_300": [box("person", 3 * (i % 32), 4 * (i // 32), 2, 3) for i in range(300)],
    "diagonal": [box("car", 10, 10, 4, 4), box("car", 14, 14, 4, 4), box("cargroup", 30, 10, 4, 4), box("cargroup", 34, 14, 4, 4)],
    "nothing": [box("road", 0, 20, 96, 28)],
}  # fmt: skip


@dataclass(frozen=True)
class TinyFrame:
    """A frame below `root`: `split/city/name`, and the part of the ground truth that it has."""

    root: Path
    split: str
    city: str
    name: str
    part: str = "gtFine"

    @property
    def image(self) -> Path:
        return self.root / "leftImg8bit" / self.split / self.city / f"{self.name}_leftImg8bit.png"

    def truth(self, kind: str) -> Path:
        """`kind` is polygons, labelIds or instanceIds."""
        end = "json" if kind == "polygons" else "png"
        return self.root / self.part / self.split / self.city / f"{self.name}_{self.part}_{kind}.{end}"

    def write(self, objects: Iterable[Object], kinds: Iterable[str] = ALL_KINDS) -> TinyFrame:
        """Writes the picture and the ground truth."""
        self.write_image()
        polygons = self.truth("polygons")
        polygons.parent.mkdir(parents=True, exist_ok=True)
        entries = [{"label": label, "polygon": polygon} for label, polygon in objects]
        entries.insert(0, {"label": "car", "polygon": [[0, 0], [50, 0], [50, 40]], "deleted": 1})
        polygons.write_text(json.dumps({"imgHeight": HEIGHT, "imgWidth": WIDTH, "objects": entries}))
        for kind, draw in (("labelIds", json2labelImg), ("instanceIds", json2instanceImg)):
            if kind in kinds:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # saving of 32-bit images, Pillow 12
                    draw(str(polygons), str(self.truth(kind)))
        if "polygons" not in kinds:
            polygons.unlink()
        return self

    def write_image(self) -> None:
        self.image.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(len(self.name)).integers(0, 255, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(self.image)


def nasty_tree(root: Path, split: str = "train", kinds: Iterable[str] = ALL_KINDS) -> list[TinyFrame]:
    """A frame for each of NASTY, in two cities."""
    return [
        TinyFrame(root, split, ("ulm", "bonn")[index % 2], name).write(objects, kinds)
        for index, (name, objects) in enumerate(NASTY.items())
    ]


def objects_one_by_one(path: Path) -> Iterator[tuple[int, int, list[int], int, np.ndarray, str]]:
    """The plain conversion of an instance image: (category, iscrowd, bbox, area, mask, RLE) of each id."""
    ids = np.asarray(Image.open(path)).astype(int)
    for value in np.unique(ids):
        category = value // 1000 if value >= 1000 else value
        if category in CATEGORIES:
            pixels = ids == value
            y, x = np.nonzero(pixels)
            box = [x.min(), y.min(), x.max() - x.min() + 1, y.max() - y.min() + 1]
            rle = mask.encode(np.asfortranarray(pixels.astype(np.uint8)))["counts"].decode()
            yield int(category), int(value < 1000), [int(side) for side in box], len(x), pixels, rle
