"""What both inflating programs do: plan, make, finish, or all of it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from training.data.errors import DataError
from training.data.files import make_folder
from training.data.inflation.inflation import Inflation, open_inflation
from training.data.inflation.labels import Labels
from training.data.inflation.options import Options, parse
from training.data.inflation.phases import finish, left_bytes, make, plan, whole_set
from training.data.inflation.place import at_work
from training.data.inflation.plan import Plan, readable_plan, write_plan
from training.data.manifest import MANIFEST_FILE, Manifest, file_sha256

_MISSED = 0.1  # of the mean size: worth telling


def run(labels: Labels, arguments: Sequence[str]) -> None:
    """Inflates as command line arguments say; the last line on stdout is a JSON object that sums up. Raises DataError."""
    started_s = time.monotonic()
    options = parse(arguments, labels.program, labels.mean_mb)
    inflation, known = open_inflation(labels, options)
    with (
        _folder(options.out),
        at_work(options.out, alone=options.phase != "make"),
        _saying_what_is_left(inflation, options),
    ):
        summary = _run(inflation, known, options)
    for warning in summary["warnings"]:
        print(f"warning: {warning}")
    print(json.dumps({**summary, "seconds": round(time.monotonic() - started_s, 3)}), flush=True)


def _run(inflation: Inflation, known: Plan | None, options: Options) -> dict[str, Any]:
    if options.phase == "make" and known:
        images, written_bytes = make(inflation, known, options.node, options.nodes, options.workers)
        return {"images": images, "bytes": written_bytes, "skipped": not known.shards, "warnings": []}
    if manifest := whole_set(inflation, known, options.workers):
        assert known is not None
        print(f"{options.out}: already inflated from this base set, nothing to do")
        if readable_plan(options.out) is None:
            with suppress(OSError):  # the set may be read-only
                write_plan(options.out, replace(known, shards=[]))
        return _summary(inflation, manifest, skipped=True)
    if options.phase == "finish" and known:
        return _finished(inflation, known, options)
    warnings: list[str] = []
    made = plan(inflation, known, warnings)
    if options.phase == "plan":
        return {
            "images": inflation.images,
            "left_images": inflation.images_of(made.shards),
            "left_shards": len(made.shards),
            "left_bytes": round(left_bytes(inflation, made)),
            "skipped": False,
            "warnings": warnings,
        }
    make(inflation, made, 0, 1, options.workers)
    return _finished(inflation, made, options)


def _finished(inflation: Inflation, made: Plan, options: Options) -> dict[str, Any]:
    manifest = finish(inflation, made, options.workers, _command(inflation, options))
    return _summary(inflation, manifest, skipped=False)


def _summary(inflation: Inflation, manifest: Manifest, skipped: bool) -> dict[str, Any]:
    train = manifest.splits["train"]
    mean_bytes = (train.image_bytes + train.label_bytes) / train.images
    warnings = []
    asked_mb = inflation.settings.mean_mb
    if asked_mb is not None and abs(mean_bytes / 1e6 - asked_mb) > _MISSED * asked_mb:
        warnings.append(f"images have {mean_bytes / 1e6:.2f} MB on average, not {asked_mb:g} as asked for")
    return {
        "manifest_sha256": file_sha256(inflation.out / MANIFEST_FILE),
        "images": train.images,
        "image_bytes": train.image_bytes,
        "mean_image_bytes": round(mean_bytes),
        "skipped": skipped,
        "warnings": warnings,
    }


@contextmanager
def _folder(out: Path) -> Iterator[None]:
    """The folder is there, and does not stay where nothing came into it. Raises DataError."""
    make_folder(out)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            out.rmdir()
        raise


@contextmanager
def _saying_what_is_left(inflation: Inflation, options: Options) -> Iterator[None]:
    """Adds to an error what is done, what is left, and how to go on; to an interruption what is done and left."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"{inflation.out}: {inflation.state()}", file=sys.stderr, flush=True)
        raise
    except OSError as error:
        if error.errno is None:
            raise
        problem = f"{error.filename2 or error.filename or inflation.out}: {error.strerror}"
        if isinstance(error, FileNotFoundError) and options.phase == "make":
            problem += f" (does another process make the part of --node {options.node}, too?)"
    except DataError as error:
        problem = str(error)
    else:
        return
    raise DataError(f"{problem}; {inflation.state()}; then go on with: {_command(inflation, options)}")


def _command(inflation: Inflation, options: Options) -> str:
    return options.command(inflation.labels.program, inflation.settings.as_text())
