"""Work over items on several processes: in order, and few items ahead of their turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from training.data.errors import DataError
from training.data.workers import map_ordered


def doubled(item: int) -> int:
    if item < 0:
        raise DataError(f"{item} is negative")
    return 2 * item


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("count", [0, 1, 2, 50])
def test_results_come_in_the_order_of_the_items(workers: int, count: int) -> None:
    assert list(map_ordered(doubled, iter(range(count)), workers)) == [2 * item for item in range(count)]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_ends_the_work(workers: int) -> None:
    with pytest.raises(DataError, match="-1 is negative"):
        list(map_ordered(doubled, [3, 4, -1, 5], workers))


@pytest.mark.parametrize("workers", [1, 2])
def test_few_items_are_taken_before_their_turn(workers: int) -> None:
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(1000):
            taken += 1
            yield item

    for done, _ in enumerate(map_ordered(doubled, items(), workers), start=1):
        assert taken - done <= 4 * workers
