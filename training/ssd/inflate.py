"""A converted set, inflated to the size of a benchmark: seeded variants of each frame, their boxes moved with them.

    python training/ssd/inflate.py --source BASE --out OUT --factor 327 [--method copy] [--format jpeg] [--mean-mb 2.88]

Variant 0 of a frame is the frame itself. OUT is as convert.py makes it, with the images of a frame in a folder of their own;
it may be killed at any moment and started again. For several nodes: --phase plan on one, --phase make --node I --nodes N on
each, --phase finish on one. The last line on stdout is a JSON object that sums up.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.data.errors import exit_status
from training.data.inflation.coco import CocoLabels
from training.data.inflation.program import run

if __name__ == "__main__":
    sys.exit(exit_status(lambda: run(CocoLabels(), sys.argv[1:])))
