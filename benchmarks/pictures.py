"""Data sets to measure with: generated street scenes of 2048x1024 px, as PNG and as JPEG, for both programs."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from training.segmentation.dataset import SegmentationSet

_PROGRAMS = Path(__file__).resolve().parents[1] / "training" / "data"
_JPEG_QUALITY = 92


def street_scenes(out: Path, frames: int) -> Path:
    """`out`, in Cityscapes' layout, with so many frames of train."""
    _run("generate.py", "--out", str(out), "--train", str(frames), "--val", "0")
    return out


def for_detection(cityscapes: Path, out: Path) -> Path:
    """`out`, as the SSD program reads it."""
    _run("convert.py", "--cityscapes", str(cityscapes), "--out", str(out))
    return out


def detection_as_jpeg(source: Path, out: Path, splits: tuple[str, ...] = ("train2017",)) -> Path:
    """A set of the SSD program with its images as JPEG."""
    (out / "annotations").mkdir(parents=True)
    for split in splits:
        annotations = Path("annotations") / f"instances_{split}.json"
        document = json.loads((source / annotations).read_text(encoding="utf-8"))
        pairs = []
        for image in document["images"]:
            name = Path(image["file_name"])
            image["file_name"] = name.with_suffix(".jpg").as_posix()
            pairs.append((source / split / name, out / split / image["file_name"]))
        _as_jpeg(pairs)
        (out / annotations).write_text(json.dumps(document), encoding="utf-8")
    return out


def segmentation_as_jpeg(source: SegmentationSet, out: Path) -> Path:
    """A set in Cityscapes' layout with its images as JPEG; masks are links to those of `source`."""
    pairs = []
    for index in range(len(source)):
        image, mask = source.image(index), source.mask(index)
        pairs.append((image, out / source.images.name / image.relative_to(source.images).with_suffix(".jpg")))
        link = out / source.masks.name / mask.relative_to(source.masks)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(mask.resolve())
    _as_jpeg(pairs)
    return out


def _as_jpeg(pairs: list[tuple[Path, Path]]) -> None:
    def convert(pair: tuple[Path, Path]) -> None:
        source, target = pair
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.open(source).convert("RGB").save(target, quality=_JPEG_QUALITY)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(convert, pairs):
            pass


def _run(program: str, *arguments: str) -> None:
    subprocess.run([sys.executable, str(_PROGRAMS / program), *arguments], check=True, stdout=subprocess.DEVNULL)
