"""A rank of a real torch gang: gloo, one small allreduce per step.

Usage: torch_rank.py RUN_FOLDER STEP_S    started by torchrun
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from rank_life import RANK, RankLife, is_finished

from training.common import process_exit, program
from training.wire.events import Body


def train(write: Callable[[Body], None], step_s: float) -> None:
    dist.init_process_group("gloo")
    life = RankLife(write)
    finished = torch.zeros(1)
    while not finished.item():
        life.work(step_s)
        finished.fill_(float(RANK == 0 and is_finished()))
        dist.all_reduce(finished)
    dist.destroy_process_group()


if __name__ == "__main__":
    process_exit.run(lambda: program.run(lambda write: train(write, float(sys.argv[2])), Path(sys.argv[1])))
