"""A cluster's node counts are the slots of its DAG."""

from __future__ import annotations

import pytest
from trials import cluster


@pytest.mark.parametrize(
    ("nodes", "counts"),
    [
        (1, [1]),
        (4, [1, 2, 3, 4]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (9, [1, 2, 4, 8, 9]),
        (16, [1, 2, 4, 8, 16]),
        (100, [1, 2, 4, 8, 16, 32, 64, 100]),
    ],
)
def test_without_a_list_there_are_all_counts_up_to_8_then_powers_of_two_and_the_whole(
    nodes: int, counts: list[int]
) -> None:
    assert cluster(nodes).counts() == counts


def test_listed_counts_are_sorted_and_each_stands_once() -> None:
    assert cluster(4, node_counts=[4, 1, 4]).counts() == [1, 4]


def test_a_cluster_survives_the_way_through_its_plan() -> None:
    ours = cluster(3, array={"kind": "command", "connection": "nas", "command": ["flush", "--all"]})
    assert type(ours).model_validate_json(ours.model_dump_json()) == ours
