"""The supervisor looks for ranks among processes that come and go."""

from __future__ import annotations

import subprocess
import threading
import time

from training.node.ranks import Ranks

SECONDS = 3.0


def test_a_process_that_ends_while_it_is_looked_at_is_no_error() -> None:
    deadline = time.monotonic() + SECONDS
    process = subprocess.Popen(["true"])

    def start_others() -> None:
        nonlocal process
        while time.monotonic() < deadline:
            process.wait()
            process = subprocess.Popen(["true"])

    starting = threading.Thread(target=start_others)
    starting.start()
    try:
        while time.monotonic() < deadline:
            Ranks(process.pid).wait(0)
    finally:
        starting.join()
        process.wait()
