"""Data sets to measure with: generated street scenes of 2048x1024 px, as PNG and as JPEG, for both programs."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image
from programs import run

from training.segmentation.dataset import SegmentationSet

_JPEG_QUALITY = 92
_FRAMES_PER_CITY = 200
_PER_LABEL = 1000  # instance ids to label ids


def street_scenes(out: Path, frames: int) -> Path:
    """`out`, in Cityscapes' layout, with so many frames of train."""
    run("data/generate.py", "--out", str(out), "--train", str(frames), "--val", "0")
    return out


def small_frames(tree: Path, count: int) -> Path:
    """`tree`, in Cityscapes' layout: links to one frame of 256x128 px, under `count` names.

    It has three objects, and less than 4 KiB a file.
    """
    tree.mkdir()
    image, truth, labels = (tree / f"{name}.png" for name in ("image", "truth", "labels"))
    Image.linear_gradient("L").resize((256, 128)).convert("RGB").save(image)
    ids = np.full((128, 256), 7, np.uint16)
    ids[20:90, 10:60], ids[40:80, 50:120], ids[5:20, 200:256] = 26000, 24000, 26
    Image.fromarray(ids).save(truth)
    Image.fromarray(np.where(ids < _PER_LABEL, ids, ids // _PER_LABEL).astype(np.uint8)).save(labels)
    for place in range(count):
        link_frame(tree, place, {"leftImg8bit": image, "gtFine_instanceIds": truth, "gtFine_labelIds": labels})
    return tree


def link_frame(tree: Path, place: int, files: dict[str, Path]) -> None:
    """Puts a frame, its files by the ends of their names, under the name of its `place` into Cityscapes' layout."""
    city = f"city{place // _FRAMES_PER_CITY:04d}"
    for end, source in files.items():
        target = tree / end.partition("_")[0] / "train" / city / f"{city}_{place:06d}_000019_{end}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.hardlink_to(source)


def for_detection(cityscapes: Path, out: Path) -> Path:
    """`out`, as the SSD program reads it."""
    run("data/convert.py", "--cityscapes", str(cityscapes), "--out", str(out))
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


def repeated(source: Path, out: Path, images: int) -> Path:
    """A set of the SSD program with at least so many images for training: those of `source`, as links, again and again."""
    annotations = Path("annotations") / "instances_train2017.json"
    document = json.loads((source / annotations).read_text(encoding="utf-8"))
    once, boxes = document["images"], document["annotations"]
    times = -(-images // len(once))
    ids, box_ids = (1 + max(entry["id"] for entry in entries) for entries in (once, boxes))
    document["images"], document["annotations"] = [], []
    for turn in range(times):
        for image in once:
            name = Path(str(turn)) / image["file_name"]
            document["images"].append({**image, "id": image["id"] + turn * ids, "file_name": name.as_posix()})
            link = out / "train2017" / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.hardlink_to(source / "train2017" / image["file_name"])
        for box in boxes:
            moved = {"id": box["id"] + turn * box_ids, "image_id": box["image_id"] + turn * ids}
            document["annotations"].append({**box, **moved})
    (out / "annotations").mkdir(parents=True)
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


def data_set(workload: str, name: str, scenes: Path, made: Path) -> Path:
    """What a program of `workload` reads, of `scenes` in Cityscapes' layout, below `made`. `name`: PNG or JPEG."""
    if workload == "ssd":
        png = made / "ssd-png"
        if not png.exists():
            for_detection(scenes, png)
        return png if name == "PNG" else detection_as_jpeg(png, made / "ssd-jpeg")
    if name == "PNG":
        return scenes
    return segmentation_as_jpeg(SegmentationSet.open(scenes, "train", 0, print), made / "scenes-jpeg")


def _as_jpeg(pairs: list[tuple[Path, Path]]) -> None:
    def convert(pair: tuple[Path, Path]) -> None:
        source, target = pair
        target.parent.mkdir(parents=True, exist_ok=True)
        Image.open(source).convert("RGB").save(target, quality=_JPEG_QUALITY)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(convert, pairs):
            pass
