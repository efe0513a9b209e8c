"""A rank ends with its own status, also while a thread of gloo's still waits for Python."""

import atexit
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from training.common import process_exit
from training.common.errors import UserError, fail

ROOT = Path(__file__).resolve().parents[2]


def a_rank(store: str, rank: int, end: str) -> None:
    """Both ranks add up; on rank 0 the thread that added then runs Python until the process is well into its end."""
    atexit.register(lambda: print("what was registered was called,", end=" "))
    files = dist.FileStore(store, 2)
    dist.init_process_group("gloo", store=files, rank=rank, world_size=2)
    if rank == 1:
        files.wait(["rank 0 is ready"])
    work = dist.all_reduce(torch.ones(1), async_op=True)
    if rank == 0:
        work.get_future().then(lambda _: [time.sleep(0.001) for _ in range(2000)])
        files.set("rank 0 is ready", "")
    work.get_future().wait()  # as torch's DDP does
    print("all steps are done,", end=" ")
    if end == "in a user's error":
        fail(UserError("no such file"))
    if end == "in a bug":
        raise ZeroDivisionError


def ended(folder: Path, end: str, protected: bool = True) -> subprocess.CompletedProcess[str]:
    how = "protected" if protected else "bare"
    command = [sys.executable, __file__, str(folder / "store")]
    with subprocess.Popen([*command, "1", "well", "protected"], env={"PYTHONPATH": str(ROOT)}):
        return subprocess.run(
            [*command, "0", end, how], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=100
        )


def test_without_it_a_rank_that_went_well_is_killed(tmp_path):
    assert ended(tmp_path, "well", protected=False).returncode == -signal.SIGABRT


@pytest.mark.parametrize(
    ("end", "status", "last_line"),
    [
        ("well", 0, None),
        ("in a user's error", 2, "error: no such file"),
        ("in a bug", 1, "[rank0]: ZeroDivisionError"),
    ],
)
def test_a_rank_ends_with_its_own_status_and_words(tmp_path, end, status, last_line):
    done = ended(tmp_path, end)
    assert done.returncode == status, done.stderr
    assert done.stdout == "all steps are done, what was registered was called, "
    said = [line for line in done.stderr.splitlines() if not line.startswith("[W")]
    assert said[-1:] == ([] if last_line is None else [last_line])


if __name__ == "__main__":
    _, file, number, way, how = sys.argv

    def main() -> None:
        a_rank(file, int(number), way)

    main() if how == "bare" else process_exit.run(main)
