"""What tells the first cause from what only followed: sentences that gloo, NCCL and torch's launcher really end in."""

from __future__ import annotations

import pytest

from training.wire.causes import UNKNOWN_END, doubt


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:2873",
        "DistBackendError: NCCL error: remote process exited or there was a network error",
        "RuntimeError: Socket Timeout",
        "BrokenPipeError: [Errno 32] Broken pipe",
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "RuntimeError: Timed out waiting 1800000ms for recv operation to complete",
        "killed by SIGTERM",
        "killed by SIGABRT",
    ],
)
def test_a_rank_that_lost_its_peer_only_noticed(error: str) -> None:
    assert doubt(error) > doubt(UNKNOWN_END)


@pytest.mark.parametrize(
    "error",
    [
        "killed by SIGKILL",
        "killed by SIGSEGV",
        "exit status 9",
        "TrainingError: the loss is nan at step 4 (learning rate 0.1): training has diverged",
        "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "OSError: [Errno 28] No space left on device",
        "UserError: /nas/a.png: not a PNG; replace it with the frame's picture, or remove it",
    ],
)
def test_a_rank_that_fell_by_itself_did_not(error: str) -> None:
    assert doubt(error) < doubt(UNKNOWN_END)
