"""Worker processes of torch's DataLoader: how they begin, and what it means when one dies."""

from __future__ import annotations

import gc

from training.common.errors import TrainingError


def keep_what_was_inherited(_: int) -> None:
    """A forked worker that collected its parent's garbage would end threads that it does not have, and wait for ever."""
    gc.freeze()


def worker_died(error: RuntimeError) -> TrainingError:
    """What a user can do about it."""
    return TrainingError(
        f"a loader worker died ({' '.join(str(error).split())}); is there enough memory, and room in /dev/shm? "
        "Fewer workers need less"
    )
