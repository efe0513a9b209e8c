"""DeepLabV3+ on Cityscapes, as `python -m torch.distributed.launch … train.py …` starts it."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.common import process_exit
from training.common.binding import bind, local_world_size
from training.common.errors import UserError, fail
from training.segmentation.args import parse


def main() -> None:
    try:
        options = parse(sys.argv[1:])
    except UserError as error:
        fail(error)
    common = options.common
    binding = bind(common.local_rank, local_world_size(), common.cuda, common.binding)  # before numpy's threads
    if common.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads it once
    from training.common import program

    if options.mode == "training":
        from training.segmentation.run import train as run
    else:
        from training.segmentation.run import validate as run
    program.run(lambda write: run(options, binding, write), common.events)


if __name__ == "__main__":
    process_exit.run(main)
