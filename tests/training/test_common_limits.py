"""What a user is told about a training that its input held up."""

import pytest

from training.common.limits import input_limit
from training.wire.events import ClockStop


def clock(file_wait_s):
    return ClockStop(10, 40, 100.0, 40, 4000, 4000, 8, None, file_wait_s)


@pytest.mark.parametrize(
    ("data_wait_s", "file_wait_s", "jpeg", "said"),
    [
        (9.0, 8.0, False, None),
        (
            40.0,
            30.0,
            False,
            "40% of the time went by waiting for data, 75% of it for files that storage had not delivered",
        ),
        (40.0, 4.0, False, "90% of it for decoding and augmentation. The images are PNG, which only the CPU decodes"),
        (
            40.0,
            4.0,
            True,
            "90% of it for decoding and augmentation; more --num-workers help while there are idle cores",
        ),
        (40.0, None, False, "40% of the time went by waiting for data. The images are PNG"),
        (40.0, None, True, "limited by its input: 40% of the time went by waiting for data"),
    ],
)
def test_storage_and_decoding_are_told_apart(data_wait_s, file_wait_s, jpeg, said):
    told = input_limit(clock(file_wait_s), data_wait_s, data_wait_s, jpeg)
    assert told is None if said is None else said in told


def test_a_trial_of_no_time_was_not_held_up():
    assert input_limit(ClockStop(0, 0, 0.0, 0, 0, 0, 0, None), 0.0, 0.0, False) is None


def test_a_host_that_waits_for_its_gpu_is_not_held_up_by_the_input():
    assert input_limit(clock(0.1), 0.2, 90.0, True) is None
    told = input_limit(clock(80.0), 14.0, 90.0, True)
    assert told is not None
    assert "14% of the time went by waiting for data, 89% of it for files that storage had not delivered" in told
