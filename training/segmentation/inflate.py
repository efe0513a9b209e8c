"""A prepared set, inflated to the size of a benchmark: seeded variants of each frame, their masks moved with them.

    python training/segmentation/inflate.py --source BASE --out OUT --factor 681 [--method copy] [--format jpeg] [--mean-mb 2.67]

Variant 0 of a frame is the frame itself. OUT is as prepare.py makes it, with the pairs of a frame in folders of their own, and
with its list of files and its centroids; it may be killed at any moment and started again. For several nodes: --phase plan on
one, --phase make --node I --nodes N on each, --phase finish on one. The last line on stdout is a JSON object that sums up.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.data.errors import exit_status
from training.data.inflation.program import run
from training.segmentation.inflated_masks import MaskLabels

if __name__ == "__main__":
    sys.exit(exit_status(lambda: run(MaskLabels(), sys.argv[1:])))
