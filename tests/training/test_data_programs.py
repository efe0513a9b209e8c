"""Runs the programs that make data sets as a user does."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_DATA = Path(__file__).resolve().parents[2] / "training" / "data"
GENERATE, CONVERT = _DATA / "generate.py", _DATA / "convert.py"
PREPARE = _DATA.parent / "segmentation" / "prepare.py"


def _run(check: bool, *command: object) -> subprocess.CompletedProcess[str]:
    result = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, cwd="/", timeout=120)
    assert not check or result.returncode == 0, result.stderr
    return result


def generate(
    out: Path, *, train: int = 4, val: int = 2, seed: int = 0, workers: int = 2, check: bool = True
) -> subprocess.CompletedProcess[str]:
    counts = ("--train", train, "--val", val, "--seed", seed, "--workers", workers)
    return _run(check, GENERATE, "--out", out, *counts)


def convert(
    source: Path, out: Path, *options: object, workers: int = 1, check: bool = True
) -> subprocess.CompletedProcess[str]:
    return _run(check, CONVERT, "--cityscapes", source, "--out", out, "--workers", workers, *options)


def prepare(source: Path, out: Path, *, workers: int = 1, check: bool = True) -> subprocess.CompletedProcess[str]:
    return _run(check, PREPARE, "--cityscapes", source, "--out", out, "--workers", workers)


def summary(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The JSON object in the last line of what converts or prepares."""
    document: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return document


def tree(folder: Path) -> dict[str, str]:
    """Every file below a folder with the SHA-256 of its bytes."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def interrupted(program: Path, *options: object, begun: Callable[[], bool]) -> tuple[int, str]:
    """Presses Ctrl-C again and again, from when a program has begun to when it ends: its status, and stderr."""
    # Where pytest was started with SIGINT ignored (its workers are), its children would ignore it as well.
    command = ["env", "--default-signal=INT", sys.executable, str(program), *map(str, options)]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline_s, pressed = time.monotonic() + 20, False
    while running.poll() is None and time.monotonic() < deadline_s:
        if pressed or begun():
            running.send_signal(signal.SIGINT)
            pressed = True
        time.sleep(0.001)
    running.kill()
    said = running.communicate()[1]
    return running.returncode, said
