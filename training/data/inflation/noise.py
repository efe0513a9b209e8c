"""Sensor noise, drawn once and used by all variants, each from a place of its own."""

from __future__ import annotations

import hashlib
import math

import numpy as np
from numpy.typing import NDArray

NOISE_VALUES = 1 << 23  # more than the 3 * 2048 * 1024 of a frame
_AT_ONCE = 1 << 16
_BYTES = 8  # random bytes whose sum is one value: near enough to a normal distribution, and in whole numbers
_SUMS = np.arange(_BYTES * 255 + 1)
_MEAN, _DEVIATION = _BYTES * 255 / 2, math.sqrt(_BYTES * (256**2 - 1) / 12)


class Noise:
    """Noise of a standard deviation in grey levels: a ring of whole numbers that follows from the seed."""

    def __init__(self, seed: int, deviation: float) -> None:
        key = int.from_bytes(hashlib.blake2b(f"noise/{seed}".encode(), digest_size=16).digest(), "little")
        random = np.random.Philox(key=key)
        value_of_sum = np.clip(np.rint((_SUMS - _MEAN) * (deviation / _DEVIATION)), -127, 127).astype(np.int8)
        self._ring = np.empty(NOISE_VALUES, np.int8)
        for start in range(0, NOISE_VALUES, _AT_ONCE):
            drawn = random.random_raw(_AT_ONCE).astype("<u8").view(np.uint8).reshape(_BYTES, _AT_ONCE)
            self._ring[start : start + _AT_ONCE] = value_of_sum[drawn.sum(axis=0, dtype=np.uint16)]

    def at(self, place: int, count: int) -> NDArray[np.int8]:
        """(count,) values from a place of the ring onwards."""
        start = place % NOISE_VALUES
        values = self._ring[start : start + count]
        return values if values.size == count else self._ring.take(range(start, start + count), mode="wrap")
