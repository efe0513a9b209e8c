"""Starts a test's own script as ranks on this machine, over gloo, under torchrun."""

import os
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def launch(script, *arguments, ranks=2):
    """Returns when all ranks have ended well. What they print is forbidden, what they say on stderr is shown if not."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment |= {"PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launcher, script, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
