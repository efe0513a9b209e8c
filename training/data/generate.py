"""Generates Cityscapes-format street scenes, for machines without the real data set.

    python training/data/generate.py --out DIR --train 24 --val 8 --seed 0 [--workers N]

writes DIR/leftImg8bit and DIR/gtFine in the real layout (see cityscapes.py), the label and instance images made by
cityscapesScripts' own tools. The same seed gives the same bytes for any number of workers; frames are numbered, so
a larger set holds the smaller one. DIR/generated.json says what the folder holds.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from training.data.errors import DataError, exit_status
from training.data.files import make_folder, remove_partial_files
from training.data.workers import Progress, available_cores, map_ordered
from training.wire.schema import WireError, read_json, write_json

SCHEMA = 1
GENERATOR = 1  # one more whenever the same seed gives other bytes
SET_FILE = "generated.json"

_CITIES = {"train": ("aachen", "bochum", "jena", "ulm"), "val": ("frankfurt", "lindau")}
_SUFFIXES = ("gtFine_polygons.json", "gtFine_labelIds.png", "gtFine_instanceIds.png")


@dataclass(frozen=True)
class GeneratedSet:
    """What a folder holds. `files` gives the size in bytes of each, once `finished`."""

    schema: int
    generator: int
    seed: int
    train: int
    val: int
    finished: bool
    files: dict[str, int]

    @property
    def settings(self) -> tuple[int, int]:
        """What the bytes of a frame depend on."""
        return self.generator, self.seed


@dataclass(frozen=True)
class SceneFrame:
    """One frame to make: number `index` of a split."""

    root: Path
    split: str
    index: int
    seed: int

    @property
    def files(self) -> tuple[Path, Path, Path, Path]:
        """The picture, the polygons, the label ids, the instance ids."""
        cities = _CITIES[self.split]
        city = cities[self.index % len(cities)]
        name = f"{city}_{self.index // len(cities):06d}_000019"
        picture = self.root / "leftImg8bit" / self.split / city / f"{name}_leftImg8bit.png"
        polygons, labels, instances = (
            self.root / "gtFine" / self.split / city / f"{name}_{suffix}" for suffix in _SUFFIXES
        )
        return picture, polygons, labels, instances


def main() -> None:
    started_s = time.monotonic()
    options = _options()
    root: Path = options.out.resolve()
    found = _found(root)
    wanted = GeneratedSet(SCHEMA, GENERATOR, options.seed, options.train, options.val, False, {})
    frames = _frames(root, wanted)
    what = f"{options.train} train and {options.val} val frames of seed {options.seed}"

    keep = found is not None and found.settings == wanted.settings
    missing = [frame for frame in frames if not (keep and found and _is_whole(frame, found))]
    if found and found.finished and not missing and (found.train, found.val) == (wanted.train, wanted.val):
        print(f"{root}: the {what} are already there, unchanged; nothing to do")
        return
    make_folder(root)
    remove_partial_files(root)
    if found:
        _remove(set(_frames(root, found)) - (set(frames) - set(missing)))
    write_json(root / SET_FILE, wanted)

    print(f"{root}: {what}; {len(missing)} to make with {options.workers} workers", flush=True)
    _generate(missing, options.workers)
    sizes = {path.relative_to(root).as_posix(): path.stat().st_size for frame in frames for path in frame.files}
    write_json(root / SET_FILE, GeneratedSet(SCHEMA, GENERATOR, options.seed, options.train, options.val, True, sizes))
    pictures = [size for name, size in sizes.items() if name.startswith("leftImg8bit")]
    mean_mb = sum(pictures) / len(pictures) / 1e6
    print(f"{root}: finished in {time.monotonic() - started_s:.1f} s, {mean_mb:.2f} MB per picture")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Generates Cityscapes-format street scenes.")
    parser.add_argument("--out", type=Path, required=True, help="the folder to fill: new, or an earlier run's")
    parser.add_argument("--train", type=int, default=24, help="frames of train (default %(default)s)")
    parser.add_argument("--val", type=int, default=8, help="frames of val (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="0 or more (default %(default)s)")
    parser.add_argument(
        "--workers", type=int, default=available_cores(), help="processes (default: the cores, %(default)s)"
    )
    options = parser.parse_args()
    if options.train < 1 or min(options.val, options.seed) < 0 or options.workers < 1:
        parser.error("--train and --workers must be at least 1, --val and --seed at least 0")
    return options


def _found(root: Path) -> GeneratedSet | None:
    """What a run wrote about the folder. Raises DataError for a folder that holds something else."""
    try:
        return read_json(GeneratedSet, root / SET_FILE)
    except FileNotFoundError:
        pass
    except WireError as error:
        raise DataError(f"{error}; remove {root}, or give another --out") from error
    if root.exists() and any(root.iterdir()):
        raise DataError(f"{root}: holds files that this program did not write; give a new or empty folder as --out")
    return None


def _frames(root: Path, held: GeneratedSet) -> list[SceneFrame]:
    counts = {"train": held.train, "val": held.val}
    return [SceneFrame(root, split, index, held.seed) for split, count in counts.items() for index in range(count)]


def _is_whole(frame: SceneFrame, held: GeneratedSet) -> bool:
    """Whether a frame's files are there with the sizes that were noted, if they were. Each file is written at once."""
    for path in frame.files:
        size = path.stat().st_size if path.is_file() else None
        if size is None or size != held.files.get(path.relative_to(frame.root).as_posix(), size):
            return False
    return True


def _remove(frames: set[SceneFrame]) -> None:
    for path in (path for frame in frames for path in frame.files):
        path.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()


def _generate(frames: list[SceneFrame], workers: int) -> None:
    # Not at the top: a set that is already there needs none of it.
    from training.data.scenes.render import render

    for folder in {path.parent for frame in frames for path in frame.files}:
        folder.mkdir(parents=True, exist_ok=True)
    progress = Progress(len(frames), "frames")
    for _ in map_ordered(render, frames, workers):
        progress.step()


if __name__ == "__main__":
    sys.exit(exit_status(main))
