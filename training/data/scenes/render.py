"""Writes the files of one generated frame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Protocol

import numpy as np
from cityscapesscripts.preparation.json2instanceImg import json2instanceImg
from cityscapesscripts.preparation.json2labelImg import json2labelImg

from training.data.files import atomic
from training.data.scenes.paint import paint
from training.data.scenes.scene import HEIGHT, WIDTH, compose

_PNG_LEVEL = 1  # noise hardly compresses better at higher levels, which take three times as long
_SPLIT_NUMBER = {"train": 0, "val": 1}


class FrameToRender(Protocol):
    """The part of generate.SceneFrame that is used here."""

    @property
    def split(self) -> str: ...
    @property
    def index(self) -> int: ...
    @property
    def seed(self) -> int: ...
    @property
    def files(self) -> tuple[Path, Path, Path, Path]: ...


def render(frame: FrameToRender) -> None:
    """Makes a frame's picture, polygons, label ids and instance ids, which depend on its seed, split and index only."""
    rng = np.random.default_rng((frame.seed, _SPLIT_NUMBER[frame.split], frame.index))
    things = compose(rng)
    picture, polygons, labels, instances = frame.files
    objects = [{"label": thing.label, "polygon": thing.polygon} for thing in things]
    with atomic(polygons) as path:
        path.write_text(json.dumps({"imgHeight": HEIGHT, "imgWidth": WIDTH, "objects": objects}), encoding="utf-8")
    with atomic(labels) as path:
        json2labelImg(str(polygons), str(path))
    with atomic(instances) as path:
        json2instanceImg(str(polygons), str(path))
    with atomic(picture) as path:
        paint(things, rng).save(path, compress_level=_PNG_LEVEL)
