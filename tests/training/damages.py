"""What can happen to a data set's files, done by plain file operations, and what `verify.py` has to call it.

    python tests/training/damages.py ["ssd" "segmentation" "ssd, inflated" "segmentation, inflated"]

prints the list: it makes a small set of each of these kinds with the real programs, damages a copy of it in each way, and
shows what verify said.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

TRAINING = Path(__file__).resolve().parents[2] / "training"
WIDTH, HEIGHT = 96, 64
CITIES = {"train": ("jena", "ulm"), "val": ("bonn",)}
FRAMES = 3
MEAN_MB = 0.019  # what noise of that size takes

Commands = Callable[[Path, Path], list[list[object]]]  # that make a set in a folder, of a source


def write_cityscapes(root: Path) -> Path:
    """Three frames of each city, of noise, with a car each, and no two of the same size in bytes."""
    draw = np.random.default_rng(0)
    for split, cities in CITIES.items():
        for number, city in enumerate(cities):
            images, truths = (root / part / split / city for part in ("leftImg8bit", "gtFine"))
            images.mkdir(parents=True)
            truths.mkdir(parents=True)
            for frame in range(FRAMES):
                name = f"{city}_{frame:06d}_000019"
                pixels = draw.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
                pixels[: 2 + 3 * number + frame] = 0
                ids = np.full((HEIGHT, WIDTH), 7, np.uint16)
                ids[10 : 30 + frame, 20 : 50 + 3 * number] = 26001
                Image.fromarray(pixels).save(images / f"{name}_leftImg8bit.png")
                Image.fromarray(ids).save(truths / f"{name}_gtFine_instanceIds.png")
                labels = np.where(ids > 1000, ids // 1000, ids).astype(np.uint8)
                Image.fromarray(labels).save(truths / f"{name}_gtFine_labelIds.png")
    return root


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A program of training/, started from another folder."""
    command = [sys.executable, str(TRAINING / program), *map(str, arguments)]
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=120)


def _base(program: str) -> Commands:
    return lambda source, out: [[program, "--cityscapes", source, "--out", out]]


def _inflated(base: str, program: str) -> Commands:
    def commands(source: Path, out: Path) -> list[list[object]]:
        made = out.with_name(f"{out.name}-base")
        inflate = [program, "--source", made, "--out", out, "--factor", 3, "--mean-mb", MEAN_MB]
        return [*SETS[base](source, made), inflate]

    return commands


SETS: dict[str, Commands] = {
    "ssd": _base("data/convert.py"),
    "segmentation": _base("segmentation/prepare.py"),
    "ssd, inflated": _inflated("ssd", "ssd/inflate.py"),
    "segmentation, inflated": _inflated("segmentation", "segmentation/inflate.py"),
}


def make_set(kind: str, source: Path, folder: Path) -> Path:
    """Makes a small data set of a kind in `folder`, by the programs that a user starts."""
    out = folder / kind.replace(", ", "-")
    for program, *arguments in SETS[kind](source, out):
        done = run(str(program), *arguments, "--workers", 1)
        assert done.returncode == 0, done.stdout + done.stderr
    return out


def pictures(root: Path) -> list[Path]:
    """The images of train, sorted."""
    return sorted([*root.glob("train2017/*/*.png"), *root.glob("leftImg8bit/train/*/*.png")])


def masks(root: Path) -> list[Path]:
    """The masks of train, sorted."""
    return sorted(root.glob("gtFine/train/*/*.png"))


def annotations(root: Path) -> Path:
    return root / "annotations" / "instances_train2017.json"


def records(root: Path) -> list[Path]:
    """The records of the shards of train that hold frames, sorted."""
    return sorted(path for path in root.glob("shards/train/*.json") if path.stem not in ("annotations", "index"))


def flip(path: Path, place: float = 0.5) -> Path:
    """Alters a byte at a place in a file, 0.5 for its middle."""
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    return path


def exchange(one: Path, other: Path) -> Path:
    beside = one.with_name("beside")
    one.rename(beside)
    other.rename(one)
    beside.rename(other)
    return one


def shortened(path: Path, share: float) -> Path:
    os.truncate(path, int(path.stat().st_size * share))
    return path


def substituted(path: Path, pattern: str, new: str) -> Path:
    text, count = re.subn(pattern, new, path.read_text(), count=1)
    assert count == 1
    path.write_text(text)
    return path


def removed(path: Path) -> Path:
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return path


def written(path: Path, content: bytes = b"x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def copied(source: Path, target: Path) -> Path:
    shutil.copyfile(source, target)
    return target


def half_size(path: Path) -> Path:
    with Image.open(path) as image:
        small = image.resize((image.width // 2, image.height // 2), Image.Resampling.NEAREST)
    small.save(path)
    return path


def linked_nowhere(path: Path) -> Path:
    path.unlink()
    path.symlink_to(path.with_name("gone.png"))
    return path


def made_folder(path: Path) -> Path:
    path.unlink()
    path.mkdir()
    return path


def repainted(path: Path) -> Path:
    with Image.open(path) as image:
        pixels = np.array(image)
    pixels[5, 5] = 8
    Image.fromarray(pixels).save(path)
    return path


@dataclass(frozen=True)
class Case:
    """`hurt` damages the set in a folder and gives the path hurt; `counts` is what verify has to count.

    `words` are in what it says of that path. `sets` are the kinds of set that can have it, a part of their name. The tests
    try those that are `deep` with inflated sets too.
    """

    name: str
    hurt: Callable[[Path], Path]
    counts: dict[str, int]
    words: str
    sets: str = ""
    deep: bool = False


def _other_shard(root: Path) -> Path:
    return next(path for path in pictures(root) if path.parent != pictures(root)[0].parent)


def _files(root: Path) -> int:
    return len(list(pictures(root)[0].parent.iterdir()))


CASES = [
    Case("an image is gone", lambda r: removed(pictures(r)[1]), {"missing": 1}, "is not there", deep=True),
    Case("a link leads nowhere", lambda r: linked_nowhere(pictures(r)[0]), {"missing": 1}, "a link that leads nowhere"),
    Case("a folder in a file's place", lambda r: made_folder(pictures(r)[0]), {"missing": 1}, "is a folder"),
    Case(
        "a folder is gone",
        lambda r: removed(pictures(r)[0].parent),
        {"missing": FRAMES},
        "nor is its folder",
        deep=True,
    ),
    Case("an image is cut off", lambda r: shortened(pictures(r)[2], 0.6), {"truncated": 1}, "of "),
    Case("an image is empty", lambda r: shortened(pictures(r)[0], 0), {"truncated": 1}, "has 0 of "),
    Case("two of a shard exchanged", lambda r: exchange(*pictures(r)[:2]), {"swapped": 2}, "was exchanged with"),
    Case(
        "two of two shards exchanged",
        lambda r: exchange(pictures(r)[0], _other_shard(r)),
        {"swapped": 2},
        "exchanged",
        deep=True,
    ),
    Case("another's copy", lambda r: copied(_other_shard(r), pictures(r)[1]), {"swapped": 1}, "has the content of"),
    Case(
        "an image is smaller",
        lambda r: half_size(pictures(r)[1]),
        {"wrong size": 1},
        "is 48x32 px instead of 96x64",
        deep=True,
    ),
    Case("a bit of an image", lambda r: flip(pictures(r)[1]), {"altered": 1}, "other content of the same", deep=True),
    Case(
        "bytes after an image",
        lambda r: written(pictures(r)[1], pictures(r)[1].read_bytes() + b"x"),
        {"altered": 1},
        "instead",
    ),
    Case(
        "an image of nothing",
        lambda r: written(pictures(r)[1], bytes(pictures(r)[1].stat().st_size)),
        {"altered": 1},
        "other content",
    ),
    Case(
        "a box is moved",
        lambda r: substituted(annotations(r), r'"bbox":\[2', '"bbox":[1'),
        {"altered labels": 1},
        "same",
        "ssd",
    ),
    Case(
        "a class is another",
        lambda r: substituted(annotations(r), r'"category_id":26', '"category_id":1'),
        {"altered labels": 1},
        "instead of",
        "ssd",
        deep=True,
    ),
    Case("annotations are cut off", lambda r: shortened(annotations(r), 0.9), {"truncated": 1}, "of ", "ssd"),
    Case("annotations are gone", lambda r: removed(annotations(r)), {"missing": 1}, "is not there", "ssd"),
    Case(
        "a bit of the index",
        lambda r: flip(r / "annotations/instances_train2017.index/boxes.npy", 0.9),
        {"altered labels": 1},
        "same",
        "ssd",
        deep=True,
    ),
    Case(
        "the index is gone",
        lambda r: removed(r / "annotations/instances_train2017.index"),
        {"missing": 7},
        "folder",
        "ssd",
    ),
    Case(
        "a bit of the index",
        lambda r: flip(r / "index/train-files/names.npy", 0.9),
        {"altered labels": 1},
        "same",
        "segmentation",
        deep=True,
    ),
    Case("the index is gone", lambda r: removed(r / "index/train-files"), {"missing": 3}, "folder", "segmentation"),
    Case(
        "a pixel of a mask",
        lambda r: repainted(masks(r)[0]),
        {"altered labels": 1},
        "other content",
        "segmentation",
        deep=True,
    ),
    Case("two masks exchanged", lambda r: exchange(*masks(r)[:2]), {"swapped": 2}, "exchanged", "segmentation"),
    Case("a mask is cut off", lambda r: shortened(masks(r)[0], 0.9), {"truncated": 1}, "of ", "segmentation"),
    Case("a mask is smaller", lambda r: half_size(masks(r)[0]), {"wrong size": 1}, "is 48x32 px", "segmentation"),
    Case("a mask is gone", lambda r: removed(masks(r)[0]), {"missing": 1}, "is not there", "segmentation"),
    Case(
        "one file too many",
        lambda r: written(pictures(r)[0].with_name("ulm_new_leftImg8bit.png")),
        {"extra": 1},
        "belongs to no shard",
        deep=True,
    ),
    Case("a file beside the set's", lambda r: written(r / "README"), {"extra": 1}, "belongs to no shard"),
    Case(
        "a folder too many",
        lambda r: written(pictures(r)[0].parents[1] / "paris/a.png").parent,
        {"extra": 1},
        "with 1 files",
    ),
    Case(
        "a record too many",
        lambda r: copied(records(r)[0], records(r)[0].with_name("paris.json")),
        {"extra": 1},
        "no shard",
    ),
    Case(
        "left by a killed run",
        lambda r: written(pictures(r)[0].with_name(".a.77.partial.png")),
        {"leftover": 1},
        "killed",
    ),
    Case("left of an index", lambda r: written(r / ".index.host.77.partial/a.npy").parent, {"leftover": 1}, "killed"),
    Case(
        "left of a record",
        lambda r: written(records(r)[0].with_name(".ulm.json.77.partial")),
        {"leftover": 1},
        "killed",
    ),
    Case(
        "a record is altered",
        lambda r: substituted(records(r)[0], r'"bytes": \d', '"bytes": 9'),
        {"record": 1},
        "was altered",
    ),
    Case("a record is cut off", lambda r: shortened(records(r)[0], 0.5), {"record": 1}, "is damaged"),
    Case("a record is gone", lambda r: removed(records(r)[0]), {"record": 1}, "is missing", deep=True),
    Case(
        "two records exchanged",
        lambda r: exchange(*records(r)[:2]),
        {"record": 2},
        "not the record of this shard",
        deep=True,
    ),
    Case("all records are gone", lambda r: removed(r / "shards/val"), {"record": 2}, "is missing"),
    Case("the manifest is gone", lambda r: removed(r / "manifest.json"), {"manifest": 1}, "is not there", deep=True),
    Case("the manifest is cut off", lambda r: shortened(r / "manifest.json", 0.7), {"manifest": 1}, "not JSON"),
    Case(
        "a count of the manifest",
        lambda r: substituted(r / "manifest.json", r'"images": \d', '"images": 9'),
        {"manifest": 1},
        "was altered",
    ),
    Case(
        "a key of the manifest",
        lambda r: substituted(r / "manifest.json", '"splits"', '"split"'),
        {"manifest": 1},
        "damaged",
    ),
    Case(
        "a shard's boxes",
        lambda r: substituted(next(r.glob("annotations/train2017/*.json")), r'"bbox":\[\d', '"bbox":[9'),
        {"altered labels": 1},
        "same",
        "ssd, inflated",
        deep=True,
    ),
    Case(
        "a shard's boxes are gone",
        lambda r: removed(next(r.glob("annotations/train2017/*.json"))),
        {"missing": 1},
        "is not there",
        "ssd, inflated",
        deep=True,
    ),
    Case(
        "a shard's labels",
        lambda r: flip(next(r.glob("index/train-shards/*.npy")), 0.9),
        {"altered labels": 1},
        "same",
        "segmentation, inflated",
        deep=True,
    ),
]


def cases(kind: str) -> list[Case]:
    """Those that a kind of set can have."""
    return [case for case in CASES if case.sets in kind]


def said_of(path: Path, root: Path, stdout: str) -> str:
    """The words of the table's row for a path; empty where it has none."""
    shown = path.relative_to(root).as_posix()
    for line in stdout.splitlines():
        found = re.search(rf"(^|\s){re.escape(shown)}(/\S*)?\s+(?P<words>\S.*)", line)
        if found:
            return found["words"]
    return ""


def damage_list(kinds: list[str]) -> Iterator[str]:
    """A Markdown table of what verify says to each damage of these kinds of set."""
    yield "| data set | damage | status | found | what `verify --full` said |"
    yield "| --- | --- | --- | --- | --- |"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write_cityscapes(folder / "cityscapes")
        for kind in kinds:
            sound = make_set(kind, source, folder)
            for case in cases(kind):
                root = Path(shutil.copytree(sound, folder / "copy"))
                hurt = case.hurt(root)
                done = run("data/verify.py", "--data", root, "--full", "--workers", 1)
                counts = json.loads(done.stdout.splitlines()[-1])["damage"]
                found = ", ".join(f"{count} {kind}" for kind, count in counts.items())
                words = said_of(hurt, root, done.stdout).partition(": ")[2]
                yield f"| {kind} | {case.name} | {done.returncode} | {found} | {words} |"
                shutil.rmtree(root)


if __name__ == "__main__":
    for row in damage_list(sys.argv[1:] or list(SETS)):
        print(row, flush=True)
