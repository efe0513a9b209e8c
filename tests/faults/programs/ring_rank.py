"""A rank that passes a token round a ring of TCP connections: whatever one does, all others wait for.

Usage: ring_rank.py RUN_FOLDER STEP_S    started by ring_launcher.py, with torchrun's variables in its environment

Rank 0 listens on MASTER_ADDR:MASTER_PORT and tells each rank where the next one listens.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from rank_life import RANK, WORLD_SIZE, RankLife, is_finished

from training.wire.events import EventLog, RunEnd
from training.wire.job import EVENTS_FILE, rank_folder

MASTER = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
GANG = os.environ["RING_GANG"]
MEET_LIMIT_S = 30.0
GO_ON, FINISH = b"+", b"."


class PeerVanishedError(Exception):
    """The connection to a neighbour ended."""


class Ring:
    """The connections to the previous rank and to the next one."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("", 0), backlog=WORLD_SIZE)
        following = meet(self._listener.getsockname()[1])
        self._next = socket.create_connection(following, timeout=MEET_LIMIT_S)
        self._previous, _ = self._listener.accept()
        for connection in (self._next, self._previous):
            connection.settimeout(None)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def receive(self) -> bytes:
        try:
            token = self._previous.recv(1)
        except OSError as error:
            raise PeerVanishedError(f"the previous rank: {error.strerror}") from None
        if not token:
            raise PeerVanishedError("connection closed by the previous rank")
        return token

    def send(self, token: bytes) -> None:
        try:
            self._next.sendall(token)
        except OSError as error:
            raise PeerVanishedError(f"the next rank: {error.strerror}") from None


def meet(port: int) -> tuple[str, int]:
    """Where the next rank listens."""
    if RANK == 0:
        return gather(port)
    deadline = time.monotonic() + MEET_LIMIT_S
    while True:
        try:
            with socket.create_connection(MASTER, timeout=MEET_LIMIT_S) as master, master.makefile("rw") as talk:
                print(json.dumps([GANG, RANK, master.getsockname()[0], port]), file=talk, flush=True)
                return tuple(json.loads(talk.readline()))
        except (OSError, ValueError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def gather(port: int) -> tuple[str, int]:
    """Rank 0's part: collects where all ranks listen, and tells each of its neighbour."""
    where, talks = {0: (MASTER[0], port)}, {}
    with socket.create_server(MASTER, backlog=WORLD_SIZE) as server:
        server.settimeout(MEET_LIMIT_S)
        while len(where) < WORLD_SIZE:
            connection, _ = server.accept()
            talk = connection.makefile("rw")
            gang, rank, *address = json.loads(talk.readline())
            if gang != GANG:
                sys.exit(f"rank {RANK}: stale rendezvous: a rank of {gang} came to {GANG}")
            where[rank], talks[rank] = tuple(address), talk
        for rank, talk in talks.items():
            print(json.dumps(where[(rank + 1) % WORLD_SIZE]), file=talk, flush=True)
    return where[1 % WORLD_SIZE]


def run(life: RankLife, step_s: float) -> None:
    ring = Ring()
    token = GO_ON if RANK == 0 else ring.receive()
    while True:
        life.work(step_s)
        if RANK == 0 and is_finished():
            token = FINISH
        ring.send(token)
        if token == FINISH:
            break
        token = ring.receive()
    if RANK == 0:
        ring.receive()


def main() -> int:
    folder, step_s = Path(sys.argv[1]), float(sys.argv[2])
    with EventLog(folder / rank_folder(RANK) / EVENTS_FILE, RANK) as log, (folder / "stacks.txt").open("a") as stacks:
        faulthandler.register(signal.SIGUSR1, file=stacks)
        try:
            run(RankLife(log.write), step_s)
        except (PeerVanishedError, OSError) as error:
            print(f"rank {RANK}: {error}", flush=True)
            log.write(RunEnd(status="failed", error=f"{type(error).__name__}: {error}"))
            return 1
        log.write(RunEnd(status="succeeded", error=None))
    return 0


if __name__ == "__main__":
    sys.exit(main())
