"""Objects of variants against a plain computation: the boxes and areas of the variant's instance ids."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from pycocotools import mask as rle

from training.data.errors import DataError
from training.data.inflation.boxes import Objects
from training.data.inflation.geometry import Geometry, move_mask

IDS = st.sampled_from([0, 0, 0, 24, 25, 26])


@st.composite
def frames(draw: st.DrawFn) -> tuple[np.ndarray, Geometry]:
    """An instance id image, and any part of it."""
    height, width = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    ids = draw(arrays(np.uint8, (height, width), elements=IDS))
    part_width, part_height = draw(st.integers(1, width)), draw(st.integers(1, height))
    left, top = draw(st.integers(0, width - part_width)), draw(st.integers(0, height - part_height))
    return ids, Geometry(left, top, part_width, part_height, draw(st.booleans()))


def annotation(value: int, segmentation: Any) -> dict[str, Any]:
    return {"id": value, "image_id": 7, "category_id": value, "iscrowd": value % 2, "segmentation": segmentation}


def run_lengths(mask: np.ndarray) -> dict[str, Any]:
    """COCO's uncompressed run lengths, pixel by pixel."""
    counts, now = [0], 0
    for pixel in mask.T.ravel():
        if pixel != now:
            counts.append(0)
            now = pixel
        counts[-1] += 1
    return {"size": list(mask.shape), "counts": counts}


def plain(ids: np.ndarray) -> list[dict[str, Any]]:
    found = []
    for value in np.unique(ids[ids > 0]).tolist():
        rows, columns = np.nonzero(ids == value)
        x, y = int(columns.min()), int(rows.min())
        bbox = [x, y, int(columns.max()) - x + 1, int(rows.max()) - y + 1]
        found.append({"category_id": value, "bbox": bbox, "area": len(rows), "iscrowd": value % 2})
    return found


@given(frames())
def test_objects_are_those_of_the_variants_instance_ids(frame: tuple[np.ndarray, Geometry]) -> None:
    ids, geometry = frame
    masks = {value: (ids == value).astype(np.uint8) for value in np.unique(ids[ids > 0]).tolist()}
    compressed = [annotation(value, rle.encode(np.asfortranarray(mask))) for value, mask in masks.items()]
    wanted = plain(move_mask(ids, geometry))
    assert Objects(compressed, ids.shape[1], ids.shape[0]).moved(geometry) == wanted
    as_text = [
        annotation(value, {"size": list(ids.shape), "counts": rle.encode(np.asfortranarray(mask))["counts"].decode()})
        for value, mask in masks.items()
    ]
    assert Objects(as_text, ids.shape[1], ids.shape[0]).moved(geometry) == wanted
    uncompressed = [annotation(value, run_lengths(mask)) for value, mask in masks.items()]
    assert Objects(uncompressed, ids.shape[1], ids.shape[0]).moved(geometry) == wanted


def test_polygons_are_drawn_as_pycocotools_draws_them() -> None:
    parts = [[2, 2, 9, 2, 9, 8, 2, 8], [12, 3, 15, 3, 15, 5, 12, 5]]
    objects = Objects([annotation(26, parts)], 20, 10)
    drawn = rle.merge(rle.frPyObjects(parts, 10, 20))
    (moved,) = objects.moved(Geometry(0, 0, 20, 10, False))
    assert moved == {"category_id": 26, "bbox": rle.toBbox(drawn).tolist(), "area": rle.area(drawn), "iscrowd": 0}
    (half,) = objects.moved(Geometry(10, 0, 10, 10, False))
    assert half["bbox"][2:] == [2 * 3, 2]


def test_what_a_part_does_not_show_is_left_out_and_the_rest_keeps_its_order() -> None:
    ids = np.zeros((4, 12), np.uint8)
    ids[:, :3], ids[:, 5:7], ids[1, 9:] = 26, 24, 25
    order = (26, 25, 24)
    objects = Objects([annotation(v, rle.encode(np.asfortranarray(ids == v, dtype=np.uint8))) for v in order], 12, 4)
    seen = objects.moved(Geometry(5, 0, 6, 2, True))
    assert [moved["category_id"] for moved in seen] == [25, 24]
    assert [moved["bbox"] for moved in seen] == [[0, 2, 4, 2], [8, 0, 4, 4]]
    assert objects.moved(Geometry(3, 0, 2, 4, False)) == []
    assert Objects([], 12, 4).moved(Geometry(0, 0, 12, 4, True)) == []


def test_objects_without_masks_are_refused() -> None:
    bare = {"id": 3, "image_id": 7, "category_id": 26, "iscrowd": 0, "bbox": [1, 1, 2, 2], "area": 4}
    with pytest.raises(DataError, match=r"annotation 3 of image 7 has no segmentation.*convert the base set anew"):
        Objects([bare], 12, 4)
