"""Whether a prepared data set still is what it was when it was made.

    python training/data/verify.py --data DIR [--sample N | --full] [--workers N] [--drop]

compares the names and sizes of all files with the records of the shards, these with the manifest, and the content of N
files drawn at random (default 1000), or of all, with their digests. It prints a table of what is wrong, and what to run
again. Exit status 0: sound; 1: damaged; 2: cannot be verified. The last line on stdout is a JSON object of counts.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.data.errors import exit_status
from training.data.manifest import manifest_sha256
from training.data.verification.choice import SURE, found_share
from training.data.verification.report import counts, table, what_to_run
from training.data.verification.run import Verified, drop, verify
from training.data.workers import available_cores

_SAMPLE_FILES = 1000


def main() -> None:
    started_s = time.monotonic()
    options = _options()
    sample_files = None if options.full else options.sample
    verified = verify(options.data.resolve(), sample_files, options.seed, options.workers)
    print(_read_of_it(verified, sample_files))
    dropped = None
    if verified.damages:
        _say_damage(verified)
        dropped = _dropped(verified) if options.drop else None
        for line in what_to_run(verified.subject, verified.damages, _command(verified, options), dropped is not None):
            print(line)
    else:
        print(f"sound: {verified.files:,} files in {len(verified.subject.shards):,} shards")
    summary = {
        "sound": not verified.damages,
        "manifest_sha256": manifest_sha256(verified.subject.out),
        "shards": len(verified.subject.shards),
        "files": verified.files,
        "bytes": verified.size_bytes,
        "read_files": verified.read_files,
        "read_bytes": verified.read_bytes,
        "damage": verified.damages.by_kind(),
        "damaged_shards": len(verified.damages.shards()),
        "dropped_records": dropped or 0,
        "seconds": round(time.monotonic() - started_s, 3),
    }
    print(json.dumps(summary), flush=True)
    if verified.damages:
        sys.exit(1)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Verifies a prepared data set against its manifest and records.")
    parser.add_argument("--data", type=Path, required=True, help="the data set's folder")
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument(
        "--sample", type=int, default=_SAMPLE_FILES, metavar="N", help="files to read (default: %(default)s)"
    )
    depth.add_argument("--full", action="store_true", help="read all files")
    parser.add_argument(
        "--workers", type=int, default=available_cores(), help="processes (default: the cores, %(default)s)"
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=random.randrange(10**6),
        help="draws the same sample again (default: another each time)",
    )
    parser.add_argument(
        "--drop",
        action="store_true",
        help="remove the records of damaged shards, and the manifest of an inflated set, so that they are made anew",
    )
    options = parser.parse_args()
    for name in ("sample", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    return options


def _read_of_it(verified: Verified, sample_files: int | None) -> str:
    read = (
        f"{verified.files:,} files of {verified.size_bytes / 1e6:,.0f} MB: names and sizes of all compared, and the content "
        f"of {verified.read_files:,} ({verified.read_bytes / 1e6:,.0f} MB)"
    )
    if sample_files is None or sample_files >= verified.files:
        return read
    share = found_share(sample_files)
    return f"{read}. Where {share:.2%} of the files are altered, a sample of {sample_files:,} finds it with {SURE:.0%} certainty"


def _command(verified: Verified, options: argparse.Namespace) -> list[str]:
    """What finds the same damage again."""
    command = ["python", "training/data/verify.py", "--data", str(verified.subject.out)]
    return command + (["--full"] if options.full else ["--sample", str(options.sample), "--seed", str(options.seed)])


def _say_damage(verified: Verified) -> None:
    for line in table(verified.damages):
        print(line)
    print(counts(verified.damages))
    if verified.hard_links:
        print(
            f"{verified.hard_links:,} damaged files are hard links, so that the files that they were made of are the same and "
            "as damaged: put these right first"
        )


def _dropped(verified: Verified) -> int | None:
    """How many records were removed; None, and why is told, where that cannot be done."""
    try:
        dropped = drop(verified)
    except OSError as error:
        print(f"could not drop the records of damaged shards: {error.filename}: {error.strerror}")
        return None
    print(f"dropped the records of {dropped:,} shards")
    return dropped


if __name__ == "__main__":
    sys.exit(exit_status(main))
