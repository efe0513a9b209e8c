"""An inflated set of as many images as the paper's: how long its phases, the check before a sweep and verify.py take.

    python benchmarks/paper_size.py [--workload ssd] [--frames 2975] [--factor 327] [--scratch DIR]

Frames are small (256x128 px, links to one) and variants are copies, so this is what files and documents cost, not pictures.
Each phase runs with a tenth of the frames and with all of them, in an empty folder below DIR, on all cores; printed are times,
their ratio, and what all processes of the program held at most. It needs 4 KiB a file, of which a mask is one too.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pictures import small_frames
from programs import Ran, run

PAPER_FACTORS = {"ssd": 327, "segmentation": 681}
BASE_PROGRAMS = {"ssd": "data/convert.py", "segmentation": "segmentation/prepare.py"}
FILES_PER_IMAGE = {"ssd": 1, "segmentation": 2}
BYTES_PER_FILE = 4096


def main() -> None:
    options = _options()
    factor = options.factor or PAPER_FACTORS[options.workload]
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-", dir=options.scratch) as scratch:
        need_bytes = round(1.2 * options.frames * factor * FILES_PER_IMAGE[options.workload] * BYTES_PER_FILE)
        free_bytes = shutil.disk_usage(scratch).free
        if need_bytes > free_bytes:
            sys.exit(f"{scratch}: {free_bytes / 1e9:.1f} GB free, {need_bytes / 1e9:.1f} GB needed; give --scratch")
        some, all_of_them = (
            _measure(options.workload, Path(scratch) / str(frames), frames, factor)
            for frames in (options.frames // 10, options.frames)
        )
        print(f"{options.frames // 10} and {options.frames} frames, factor {factor}: {options.workload}")
        for what, few in some.items():
            print(
                f"  {what:24} {few.text()}\n{'':26} {all_of_them[what].text()}: "
                f"{all_of_them[what].seconds / few.seconds:.1f} times the time"
            )


def _measure(workload: str, scratch: Path, frames: int, factor: int) -> dict[str, Ran]:
    scratch.mkdir()
    base, out = scratch / "base", scratch / "out"
    tree = small_frames(scratch / "cityscapes", frames)
    ran = {"base set": run(BASE_PROGRAMS[workload], "--cityscapes", str(tree), "--out", str(base))}
    inflate = (f"{workload}/inflate.py", "--source", str(base), "--out", str(out))
    settings = ("--factor", str(factor), "--method", "copy")
    ran["plan"] = run(*inflate, *settings, "--phase", "plan")
    ran["make"] = run(*inflate, "--phase", "make")
    ran["finish"] = run(*inflate, "--phase", "finish")
    ran["asked for again"] = run(*inflate, *settings)
    ran["verify.py"] = run("data/verify.py", "--data", str(out))
    ran["verify.py --full"] = run("data/verify.py", "--data", str(out), "--full")
    return ran


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measures an inflated set of as many images as the paper's.")
    parser.add_argument("--workload", choices=sorted(PAPER_FACTORS), default="ssd", help="default %(default)s")
    parser.add_argument("--frames", type=int, default=2975, help="frames of the base set (default %(default)s)")
    parser.add_argument("--factor", type=int, help=f"images per frame (default: the paper's, {PAPER_FACTORS})")
    parser.add_argument("--scratch", type=Path, help="a folder with room (default: TMPDIR)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
