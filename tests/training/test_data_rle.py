"""One-pass run lengths against pycocotools on every kind of small image, wide, high or full."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from pycocotools import mask

from training.data.rle import regions

IMAGES = arrays(
    np.uint16, array_shapes(min_dims=2, max_dims=2, max_side=9), elements=st.sampled_from([0, 7, 26, 26000, 33001])
)


@given(IMAGES)
def test_data_rle_equals_pycocotools(ids: np.ndarray) -> None:
    found = regions(ids)
    assert [region.value for region in found] == [value for value in np.unique(ids) if value]
    for region in found:
        plain = mask.encode(np.asfortranarray((ids == region.value).astype(np.uint8)))
        assert region.counts == plain["counts"].decode()
        assert region.area == mask.area(plain)
        assert list(region.bbox) == mask.toBbox(plain).tolist()
