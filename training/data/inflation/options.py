"""The command line of the inflating programs."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.data.inflation.settings import FORMATS, METHODS, Settings
from training.data.workers import available_cores

PHASES = ("plan", "make", "finish")
_MOST = 1_000_000  # images per frame


@dataclass(frozen=True)
class Options:
    """`asked` are the settings that were given, as text by option; `phase` None is all of them, on this machine."""

    source: Path
    out: Path
    phase: str | None
    node: int
    nodes: int
    workers: int
    asked: dict[str, str]

    def settings(self, mean_mb: float) -> Settings:
        """The settings that were given, and defaults; `mean_mb` is that of PNGs."""
        asked = self.asked
        method, file_format = asked.get("method", METHODS[0]), asked.get("format", FORMATS[0])
        mean = float(asked.get("mean-mb", mean_mb)) if (method, file_format) == (METHODS[0], FORMATS[0]) else None
        return Settings(int(asked["factor"]), method, file_format, mean, int(asked.get("seed", 0)))

    def command(self, program: str, settings: dict[str, str]) -> str:
        """The command that makes whatever is missing of the set, on this machine."""
        flags = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return shlex.join(["python", program, "--source", str(self.source), "--out", str(self.out), *flags])


def parse(arguments: Sequence[str], program: str, mean_mb: float) -> Options:
    """The options that command line arguments give. Ends the process, with status 2, where they are wrong."""
    parser = _parser(program, mean_mb)
    found = parser.parse_args(arguments)
    _check(parser, found)
    asked = {name: getattr(found, name.replace("-", "_")) for name in ("factor", "method", "format", "mean-mb", "seed")}
    return Options(
        source=found.source.resolve(),
        out=found.out.resolve(),
        phase=found.phase,
        node=found.node,
        nodes=found.nodes,
        workers=found.workers,
        asked={name: f"{value}" for name, value in asked.items() if value is not None},
    )


def _parser(program: str, mean_mb: float) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program, description="Inflates a base set by seeded variants of each frame.", allow_abbrev=False
    )
    parser.add_argument("--source", type=Path, required=True, help="the base set: whole, with its manifest.json")
    parser.add_argument("--out", type=Path, required=True, help="the folder to make, or to go on with")
    parser.add_argument("--factor", type=int, help="images per frame of train, the frame itself among them")
    parser.add_argument("--method", choices=METHODS, help="augment (default), or copy: the same bytes again and again")
    parser.add_argument("--format", choices=FORMATS, help="png (default), or jpeg, of a fixed quality")
    parser.add_argument(
        "--mean-mb", type=float, help=f"mean size of an image in MB, masks included, reached by noise (PNG; {mean_mb})"
    )
    parser.add_argument("--seed", type=int, help="0 or more (default 0)")
    parser.add_argument(
        "--workers", type=int, default=available_cores(), help="processes (default: the cores, %(default)s)"
    )
    parser.add_argument("--phase", choices=PHASES, help="for several nodes: plan on one, make on all, finish on one")
    parser.add_argument("--node", type=int, default=0, help="of --phase make: which one this is, from 0 (default 0)")
    parser.add_argument("--nodes", type=int, default=1, help="of --phase make: how many there are (default 1)")
    return parser


def _check(parser: argparse.ArgumentParser, found: argparse.Namespace) -> None:
    if found.factor is None and found.phase in (None, "plan"):
        parser.error("--factor is needed: how many images each frame becomes")
    if found.factor is not None and not 1 <= found.factor <= _MOST:
        parser.error(f"--factor must be at least 1 and at most {_MOST:,}")
    if found.mean_mb is not None and not 0 < found.mean_mb < 1000:
        parser.error("--mean-mb must be above 0 and below 1000")
    if found.mean_mb is not None and (found.method == "copy" or found.format == "jpeg"):
        parser.error("--mean-mb is for PNGs that are augmented: copies and JPEG files have the size that they have")
    if (found.method, found.format) == ("copy", "jpeg"):
        parser.error("--method copy copies the files as they are; --format jpeg needs --method augment")
    if found.seed is not None and found.seed < 0:
        parser.error("--seed must be at least 0")
    if found.workers < 1:
        parser.error("--workers must be at least 1")
    if not 0 <= found.node < found.nodes:
        parser.error(f"--node {found.node} is none of --nodes {found.nodes}: they count from 0")
    if found.nodes > 1 and found.phase != "make":
        parser.error("--nodes is for --phase make")
