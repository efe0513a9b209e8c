"""Regions, run lengths and polygons against pycocotools on every kind of small image, wide, high or full."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from pycocotools import mask

from training.data.conversion.contours import polygons
from training.data.conversion.rle import compressed, id_runs, regions

IMAGES = arrays(
    np.uint16, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.sampled_from([0, 7, 26, 26000, 33001])
)


@pytest.mark.parametrize("dtype", [np.uint8, ">u2", np.int32])
@given(IMAGES)
def test_data_rle_equals_pycocotools(dtype: str, ids: np.ndarray) -> None:
    ids = (ids % 251).astype(dtype)
    runs = id_runs(ids)
    found = regions(runs)
    assert [region.value for region in found] == runs.values == [value for value in np.unique(ids) if value]
    for region, counts in zip(found, compressed(runs, range(len(found))), strict=True):
        plain = mask.encode(np.asfortranarray((ids == region.value).astype(np.uint8)))
        assert counts == plain["counts"].decode()
        assert region.area == mask.area(plain)
        assert list(region.bbox) == mask.toBbox(plain).tolist()


@given(IMAGES, st.integers(1, 3), st.integers(1, 3))
def test_data_polygons_decode_to_the_same_pixels(ids: np.ndarray, tall: int, wide: int) -> None:
    ids = np.kron(ids, np.ones((tall, wide), np.uint16))
    runs = id_runs(ids)
    for number, value in enumerate(runs.values):
        rings = polygons(runs, number)
        assert all(len(ring) >= 8 and len(ring) % 2 == 0 for ring in rings)
        decoded = mask.merge(mask.frPyObjects(rings, *ids.shape))
        assert decoded == mask.encode(np.asfortranarray((ids == value).astype(np.uint8)))


def test_data_polygons_are_few() -> None:
    ids = np.zeros((20, 30), np.uint16)
    ids[2:12, 3:20] = 5
    ids[4:6, 5:9] = 0  # a hole
    ids[15, 25] = 5
    assert polygons(id_runs(ids), 0) == [
        [3, 2, 3, 4, 5, 4, 5, 6, 9, 6, 9, 4, 5, 4, 3, 4, 3, 12, 20, 12, 20, 2],
        [25, 15, 25, 16, 26, 16, 26, 15],
    ]
