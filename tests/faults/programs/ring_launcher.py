"""Plays `torchrun` on a node: starts its ranks, each in a session of its own, and ends them all when one fails, of which it tells.

Usage: ring_launcher.py NODE_RANK NODES RANKS_PER_NODE MASTER_ADDR MASTER_PORT RUN_FOLDER STEP_S
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL_S = 0.05
GRACE_S = 5.0
RANK_PROGRAM = Path(__file__).with_name("ring_rank.py")


class AskedToStopError(Exception):
    """TERM came."""


def stop(*_: object) -> None:
    raise AskedToStopError


def start(rank: int, local_rank: int, world_size: int, arguments: list[str]) -> subprocess.Popen[bytes]:
    address, port, folder, step_s = arguments
    names = {
        "RANK": rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": world_size,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
    }
    gang = "/".join(Path(folder).parts[-3:-1])
    return subprocess.Popen(
        [sys.executable, "-S", str(RANK_PROGRAM), folder, step_s],
        env={**os.environ, **{name: str(value) for name, value in names.items()}, "RING_GANG": gang},
        start_new_session=True,
    )


def end(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        if rank.poll() is None:
            rank.terminate()
    deadline = time.monotonic() + GRACE_S
    for rank in ranks:
        try:
            rank.wait(max(0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()


def main() -> int:
    node_rank, nodes, per_node = map(int, sys.argv[1:4])
    signal.signal(signal.SIGTERM, stop)
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for local_rank in range(per_node):
            ranks.append(start(node_rank * per_node + local_rank, local_rank, nodes * per_node, sys.argv[4:]))
        while any(rank.poll() is None for rank in ranks):
            if any(rank.poll() for rank in ranks):
                break
            time.sleep(POLL_S)
        failed = [(number, rank.pid, rank.returncode) for number, rank in enumerate(ranks) if rank.poll()]
        end(ranks)
        if failed:
            print("Failures:\n  <NO_OTHER_FAILURES>\nRoot Cause (first observed failure):")
        for number, pid, code in failed:
            print(f"[{number}]:", f"  time      : {time.strftime('%Y-%m-%d_%H:%M:%S')}", sep="\n")
            print(f"  rank      : {node_rank * per_node + number} (local_rank: {number})")
            print(f"  exitcode  : {code} (pid: {pid})", flush=True)
        return 1 if failed else 0
    except AskedToStopError:
        return 128 + signal.SIGTERM
    finally:
        end(ranks)


if __name__ == "__main__":
    sys.exit(main())
