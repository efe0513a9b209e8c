"""SSD300-ResNet-50 on COCO annotations, as `python -m torch.distributed.launch … main.py …` starts it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.common.errors import UserError, fail
from training.ssd.args import parse


def main() -> None:
    try:
        options = parse(sys.argv[1:])
    except UserError as error:
        fail(error)
    from training.common import program
    from training.ssd.train import train

    program.run(lambda write: train(options, write), options.measurement.events)


if __name__ == "__main__":
    main()
