"""What the log says while nodes make images: often at first, seldom later, each node and all together."""

from __future__ import annotations

import time

import pytest

from scaleout.steps.inflation_log import InflationLog, duration_text


def progress(done: int, of: int, images_per_s: str = "2.5", mb_per_s: str = "1,007.2") -> str:
    return f"{done:,} of {of:,} images, {images_per_s} images/s, {mb_per_s} MB/s, 3 min left"


def log(said: list[str], first_interval_s: float = 0.0, left: int = 2000) -> InflationLog:
    return InflationLog("ssd", 10_000, left, said.append, first_interval_s)


def test_all_nodes_together_are_told_with_their_sum_and_the_time_of_the_slowest() -> None:
    said: list[str] = []
    told = log(said)
    told.hear("node2", progress(500, 1000))
    assert said == [f"[node2] {progress(500, 1000)}"]
    said.clear()
    told.hear("node1", progress(100, 1000, "1.0", "2.9"))
    assert said == [
        f"[node1] {progress(100, 1000, '1.0', '2.9')}",
        f"[node2] {progress(500, 1000)}",
        "ssd: 8,600 of 10,000 images, 3.5 images/s, 1010.1 MB/s, 15 min left on 2 nodes",
    ]


def test_progress_is_told_at_intervals_and_all_else_at_once() -> None:
    said: list[str] = []
    told = log(said, first_interval_s=0.3)
    told.hear("node1", progress(1, 1000))
    told.hear("node1", "warning: val: no frames")
    assert said == ["[node1] warning: val: no frames"]
    time.sleep(0.35)
    told.hear("node1", progress(2, 1000))
    told.hear("node1", progress(3, 1000))
    assert said[1:] == [f"[node1] {progress(2, 1000)}"]


def test_intervals_grow_to_a_minute() -> None:
    told = log([], first_interval_s=10)
    began_s = time.monotonic()
    assert [round(told._interval_s(began_s + elapsed_s)) for elapsed_s in (0, 100, 300, 600, 10**6)] == [
        10,
        10,
        30,
        60,
        60,
    ]


def test_what_was_there_before_counts_as_done() -> None:
    told = log([], left=2000)
    assert told.standing().startswith(
        "about 8,000 of 10,000 images of ssd are made and 2,000 are left; run the sweep again"
    )
    told.hear("node1", progress(250, 1000))
    assert told.standing().startswith("about 8,250 of 10,000 images of ssd are made and 1,750 are left;")


def test_a_node_that_has_not_begun_to_count_has_no_time_left() -> None:
    said: list[str] = []
    told = log(said)
    told.hear("node1", progress(0, 1000, "0.0", "0.0"))
    told.hear("node2", progress(0, 1000, "0.0", "0.0"))
    assert said[-1] == "ssd: 8,000 of 10,000 images, 0.0 images/s, 0.0 MB/s, 0.0 s left on 2 nodes"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.31, "0.3 s"), (46.2, "46 s"), (119, "119 s"), (720, "12 min"), (12_240, "3.4 h")]
)
def test_durations_are_in_the_unit_that_reads_well(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text
