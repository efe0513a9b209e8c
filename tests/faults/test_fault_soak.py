"""Many gangs on the same hosts: struck at random moments, and one right after the other."""

from __future__ import annotations

import random

import pytest
from bed import Bed
from launch import Order, check_none_doubled, launched
from soak import Tally, soak

LAUNCH_LIMIT_S, GONE_LIMIT_S = 60.0, 20.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(0)]


def test_faults_at_random_moments_leave_nothing_and_start_nothing_twice(
    bed: Bed, release: str, pytestconfig: pytest.Config, reports: list[str]
) -> None:
    tally = Tally(pytestconfig.option.soak_seed)
    try:
        soak(bed, release, tally, pytestconfig.option.soak_faults)
    finally:
        reports.append(tally.text())
    assert (tally.orphans, tally.doubled, tally.problems()) == (0, 0, [])


def test_launches_back_to_back(bed: Bed, release: str, pytestconfig: pytest.Config, reports: list[str]) -> None:
    """No port is in use, no rank comes to the rendezvous of an earlier gang."""
    chance = random.Random(pytestconfig.option.soak_seed)
    count, succeeded = pytestconfig.option.soak_launches, 0
    try:
        for _ in range(count):
            with launched(bed, Order(release, chance.choice((1, 2, 4)), step_s=0)) as launch:
                launch.finish()
                end = launch.orchestrator.wait(LAUNCH_LIMIT_S)
                assert "succeeded" in end, f"launch {succeeded + 1}: {end}"
                launch.check_lines()
                launch.wait_until_nothing_is_left(GONE_LIMIT_S)
            check_none_doubled(bed)
            succeeded += 1
    finally:
        reports.append(f"{succeeded} of {count} launches back to back succeeded\n")
