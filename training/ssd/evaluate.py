"""mAP on the whole validation set by pycocotools' COCO evaluator, and how fast detections are made there.

Block b of `batch` consecutive images is rank b mod world size's. So the model sees the same batches whatever the number
of ranks, nothing is padded or left out, and the same weights give the same figure to the last bit, provided that each
process computes with as many threads.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import Tensor, nn
from torchvision.transforms.v2 import functional

from training.common.errors import UserError
from training.common.gang import Gang
from training.common.inference import Autocast, blocks_of, inferring, read_ahead, take_over_buffers, together
from training.common.pixels import decode
from training.common.reading import read_file
from training.data.manifest import annotations_file, split_folder
from training.ssd.boxes import IMAGE_SIZE
from training.ssd.detect import Detections, Detector

METRICS = (  # in the order of COCOeval.stats
    "AP", "AP50", "AP75", "AP_small", "AP_medium", "AP_large",
    "AR_1", "AR_10", "AR_100", "AR_small", "AR_medium", "AR_large",
)  # fmt: skip

_KEPT_OF_AN_ANNOTATION = ("image_id", "category_id", "bbox", "area", "iscrowd")  # masks would fill the memory


@dataclass(frozen=True)
class ValidationImage:
    """A record of the annotation file; `width` and `height` in px, to which its boxes refer."""

    id: int
    file_name: str
    width: int
    height: int


@dataclass(frozen=True)
class Truth:
    """`numbers` of the categories, from 1 in the order of their ids, by name in the order of the file.

    `boxes` are the annotations as COCOeval wants them, with the number of their image (from 0) and of their category.
    """

    numbers: dict[str, int]
    boxes: list[dict[str, Any]]


@dataclass(frozen=True)
class ValidationSet:
    """<root>/val2017 as <root>/annotations/instances_val2017.json lists it: `images` by id, `categories` as in the file.

    `truth` is only on rank 0.
    """

    root: Path
    images: list[ValidationImage]
    categories: list[str]
    truth: Truth | None = field(repr=False)

    @classmethod
    def open(cls, root: Path, gang: Gang) -> ValidationSet:
        """Rank 0 reads the annotations for all; no image is opened. Raises UserError on every rank."""
        truth: list[Truth] = []

        def read() -> tuple[list[ValidationImage], list[str]]:
            images, found = _read(root)
            truth.append(found)
            return images, list(found.numbers)

        images, categories = gang.share(read)
        return cls(root, images, categories, truth[0] if truth else None)

    def path(self, index: int) -> Path:
        return self.root / split_folder("val") / self.images[index].file_name


@dataclass(frozen=True)
class Result:
    """`metrics` has METRICS; None is what the evaluator leaves undefined, as where no box of that size is.

    `class_ap` has training's classes, None for one that has no box in the validation set, and `unknown_classes`: the
    validation file's categories that training does not know. Nothing detects those, but they count in the means.
    `detections` are the model's in `images` images. `reason` says why no metric is defined, None where one is.
    """

    metrics: dict[str, float | None]
    class_ap: dict[str, float | None]
    images: int
    detections: int
    seconds: float
    unknown_classes: list[str]
    reason: str | None


class InferenceTimes(NamedTuple):
    """Per iteration: its `seconds`, and how many of those passed in waiting for the decoded batch."""

    seconds: list[float]
    wait_seconds: list[float]


def evaluate(
    model: nn.Module,
    validation: ValidationSet,
    classes: list[str],
    gang: Gang,
    batch: int,
    workers: int,
    autocast: Autocast,
    layout: torch.memory_format,
) -> Result:
    """Evaluates rank 0's weights and batch-norm statistics; every rank gets the same result.

    `model` is not wrapped in DDP; `classes` are training's, without the background; `workers` decode in each process.
    Ranks other than 0 have rank 0's floating-point buffers afterwards. Raises UserError on every rank if one of them
    cannot read an image.
    """
    begin = time.perf_counter()
    take_over_buffers(model, gang)
    blocks = blocks_of(len(validation.images), batch)[gang.rank :: gang.world_size]

    def part() -> _Found:
        found: list[tuple[int, Detections]] = []
        with inferring(model, repeatable=True), closing(_pixels(validation, blocks, workers)) as batches:
            detect = Detector(model, gang.device, autocast, layout)
            for block, pixels in zip(blocks, batches, strict=True):
                found += zip(block, detect(pixels), strict=True)
        return _Found.pack(found)

    return together(gang, part, lambda parts: _score(validation, classes, _Found.join(parts), begin))


def benchmark_inference(
    model: nn.Module,
    validation: ValidationSet,
    gang: Gang,
    batch: int,
    workers: int,
    warmup_iterations: int,
    iterations: int,
    autocast: Autocast,
    layout: torch.memory_format,
) -> InferenceTimes:
    """This rank's times of: wait for a decoded batch, copy it to the device, forward, decode boxes, NMS.

    Every batch is full: the images are gone through again and again, by all ranks in turn. Raises UserError on every
    rank if one of them cannot read an image.
    """
    turns = range(gang.rank, (warmup_iterations + iterations) * gang.world_size, gang.world_size)
    count = len(validation.images)
    blocks = [[index % count for index in range(turn * batch, (turn + 1) * batch)] for turn in turns]
    seconds: list[float] = []
    wait_seconds: list[float] = []

    def part() -> None:
        with inferring(model, repeatable=False), closing(_pixels(validation, blocks, workers)) as batches:
            detect = Detector(model, gang.device, autocast, layout)
            begin = time.perf_counter()
            for pixels in batches:
                waited = time.perf_counter() - begin
                detect(pixels)
                if gang.device.type == "cuda":
                    torch.cuda.synchronize(gang.device)
                end = time.perf_counter()
                seconds.append(end - begin)
                wait_seconds.append(waited)
                begin = end

    together(gang, part, lambda _: None)
    return InferenceTimes(seconds[warmup_iterations:], wait_seconds[warmup_iterations:])


class _Found(NamedTuple):
    """Detections of many images, one row each, with the number of their image."""

    image: NDArray[np.int64]
    boxes: NDArray[np.float32]
    labels: NDArray[np.int64]
    scores: NDArray[np.float32]

    @classmethod
    def pack(cls, found: list[tuple[int, Detections]]) -> _Found:
        image = np.repeat([index for index, _ in found], [len(one.scores) for _, one in found]).astype(np.int64)
        empty = Detections(torch.empty(0, 4), torch.empty(0, dtype=torch.int64), torch.empty(0))
        all_of = [one for _, one in found] or [empty]
        parts = zip(*((one.boxes, one.labels, one.scores) for one in all_of), strict=True)
        return cls(image, *(torch.cat(part).cpu().numpy() for part in parts))

    @classmethod
    def join(cls, parts: list[_Found]) -> _Found:
        """In the order of the images, whoever found what."""
        joined = cls(*map(np.concatenate, zip(*parts, strict=True)))
        order = np.argsort(joined.image, kind="stable")
        return cls(*(column[order] for column in joined))


def _pixels(validation: ValidationSet, blocks: Sequence[Sequence[int]], workers: int) -> Iterator[Tensor]:
    """(N, 3, 300, 300) uint8 RGB of each block, decoded ahead. Raises UserError naming an image."""
    return read_ahead(lambda block: torch.stack([_small(validation.path(index)) for index in block]), blocks, workers)


def _small(path: Path) -> Tensor:
    image = decode(read_file(path), path)
    return functional.resize(image, [IMAGE_SIZE, IMAGE_SIZE], functional.InterpolationMode.BILINEAR, antialias=True)


def _score(validation: ValidationSet, classes: list[str], found: _Found, begin: float) -> Result:
    truth = validation.truth
    assert truth is not None  # this is rank 0
    numbers = truth.numbers
    evaluator = _coco_evaluation(
        validation, truth, _as_coco(validation, found, [numbers.get(name) for name in classes])
    )

    precision = evaluator.eval["precision"][:, :, :, 0, -1]  # IoU thresholds, recalls, categories: all sizes, 100 boxes
    category_ap = {name: _mean(precision[:, :, number - 1]) for name, number in numbers.items()}
    unknown = [name for name in numbers if name not in classes]
    reason = None
    if all(box["iscrowd"] for box in truth.boxes):
        reason = f"{annotations_file('val')} has no box that counts: {len(truth.boxes)} annotations, crowds alone"
    return Result(
        metrics={name: _defined(value) for name, value in zip(METRICS, evaluator.stats, strict=True)},
        class_ap={name: category_ap.get(name) for name in [*classes, *unknown]},
        images=len(validation.images),
        detections=len(found.scores),
        seconds=time.perf_counter() - begin,
        unknown_classes=unknown,
        reason=reason,
    )


def _as_coco(validation: ValidationSet, found: _Found, categories: list[int | None]) -> list[dict[str, Any]]:
    """Detections in pixels of the image, without those of classes that the validation file does not have."""
    sizes = np.array([(image.width, image.height) for image in validation.images], dtype=np.float64)
    boxes = found.boxes.astype(np.float64) * np.tile(sizes[found.image], 2)
    boxes[:, 2:] -= boxes[:, :2]
    columns = found.image.tolist(), found.labels.tolist(), found.scores.tolist(), boxes.tolist()
    rows = zip(*columns, strict=True)
    return [
        {"image_id": image, "category_id": category, "bbox": box, "area": box[2] * box[3], "iscrowd": 0, "score": score}
        for image, label, score, box in rows
        if (category := categories[label - 1]) is not None
    ]


def _coco_evaluation(validation: ValidationSet, truth: Truth, found: list[dict[str, Any]]) -> COCOeval:
    with contextlib.redirect_stdout(io.StringIO()):  # the evaluator prints its progress and its table
        sides = [_index(len(validation.images), len(truth.numbers), boxes) for boxes in (truth.boxes, found)]
        evaluator = COCOeval(*sides, "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return evaluator


def _index(images: int, categories: int, boxes: list[dict[str, Any]]) -> COCO:
    """Annotations are numbered from 1: the evaluator takes a match with number 0 for none."""
    index = COCO()
    index.dataset = {
        "images": [{"id": number} for number in range(images)],
        "categories": [{"id": number} for number in range(1, categories + 1)],
        "annotations": [{**box, "id": number} for number, box in enumerate(boxes, start=1)],
    }
    index.createIndex()
    return index


def _mean(precision: NDArray[np.float64]) -> float | None:
    defined = precision[precision > -1]
    return float(defined.mean()) if defined.size else None


def _defined(statistic: float) -> float | None:
    return float(statistic) if statistic > -1 else None


def _read(root: Path) -> tuple[list[ValidationImage], Truth]:
    path = root / annotations_file("val")
    try:
        document = json.loads(path.read_text(encoding="utf-8"), object_hook=_without_mask)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}; evaluation needs the validation set") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    try:
        images, truth = _understood(document)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not a COCO annotation file: {error!r}") from error
    if not images:
        raise UserError(f"{path} lists no images: there is nothing to evaluate on")
    if not truth.numbers:
        raise UserError(f"{path} names no categories")
    if not (root / split_folder("val")).is_dir():
        raise UserError(f"{root} has no {split_folder('val')} folder with the images of {annotations_file('val')}")
    return images, truth


def _without_mask(record: dict[str, Any]) -> dict[str, Any]:
    if "bbox" not in record:
        return record
    return {key: record[key] for key in _KEPT_OF_AN_ANNOTATION if key in record}


def _understood(document: Any) -> tuple[list[ValidationImage], Truth]:
    """In the order of the ids, as COCOeval goes. Annotations of images that are not listed are left out, as there."""
    images = sorted(map(_image, document["images"]), key=lambda image: image.id)
    image_index = {image.id: index for index, image in enumerate(images)}
    if len(image_index) < len(images):
        raise ValueError("two images have the same id")
    name_of = {category["id"]: str(category["name"]) for category in document["categories"]}
    by_id = list(dict.fromkeys(name_of[key] for key in sorted(name_of)))
    numbers = {name: by_id.index(name) + 1 for name in name_of.values()}
    boxes = [
        _box(annotation, image_index[annotation["image_id"]], numbers[name_of[annotation["category_id"]]])
        for annotation in document["annotations"]
        if annotation["image_id"] in image_index
    ]
    return images, Truth(numbers, boxes)


def _image(record: dict[str, Any]) -> ValidationImage:
    width, height = int(record["width"]), int(record["height"])
    if min(width, height) < 1:
        raise ValueError(f"an image has {width} x {height} pixels")
    return ValidationImage(record["id"], str(record["file_name"]), width, height)


def _box(annotation: dict[str, Any], image: int, category: int) -> dict[str, Any]:
    """An `area` that is not given is that of the box."""
    x, y, width, height = map(float, annotation["bbox"])
    area = annotation.get("area")
    area = width * height if area is None else float(area)
    if not all(map(math.isfinite, (x, y, width, height, area))):
        raise ValueError(f"an annotation's box is {annotation['bbox']} and its area {area}")
    crowd = int(annotation.get("iscrowd", 0))
    return {"image_id": image, "category_id": category, "bbox": [x, y, width, height], "area": area, "iscrowd": crowd}
