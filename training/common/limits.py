"""What held a training up, where it was not the model: reading files, or decoding them."""

from __future__ import annotations

from training.wire.events import ClockStop

_WORTH_SAYING = 0.1  # of the trial's time
_PNG = (
    "The images are PNG, which only the CPU decodes: 13 to 22 a second and core at 2048x1024 px. As JPEG the same cores give "
    "about 5 times as many, and a data-centre GPU's decoder about 30 times as many as 16 of them"
)


def input_limit(clock: ClockStop, waiting_s: float, data_wait_s: float, jpeg: bool) -> str | None:
    """A sentence or two for people about what this rank waited for, None where that was little.

    Both are sums over the windows, see Window: `data_wait_s` tells what its host waited for, and that is waiting for data only
    for `waiting_s`. The rates were measured beside an H200 with 16 cores, and on two cores elsewhere.
    """
    share = waiting_s / clock.seconds if clock.seconds else 0.0
    if share < _WORTH_SAYING:
        return None
    waited = f"limited by its input: {share:.0%} of the time went by waiting for data"
    if clock.file_wait_s is None:
        return f"{waited}. {_PNG}" if not jpeg else waited
    files = clock.file_wait_s / data_wait_s if data_wait_s else 0.0
    if files >= 0.5:
        return f"{waited}, {files:.0%} of it for files that storage had not delivered"
    decoding = f"{waited}, {1 - files:.0%} of it for decoding and augmentation"
    return f"{decoding}; more --num-workers help while there are idle cores" if jpeg else f"{decoding}. {_PNG}"
