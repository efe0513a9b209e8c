"""mIoU on the whole validation set, at the images' full resolution, as cityscapesScripts counts it.

Block b of `batch` consecutive images is rank b mod world size's. So the model sees the same batches whatever the number
of ranks, nothing is padded or left out, and the same weights give the same figures to the last bit, provided that each
process computes with as many threads.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional

from training.common.errors import UserError
from training.common.gang import Gang
from training.common.inference import Autocast, blocks_of, inferring, read_ahead, take_over_buffers, together
from training.common.pixels import MEAN, STD
from training.data.files import atomic
from training.segmentation.labels import CLASS_NAMES, IGNORED, LABEL_IDS, TRAIN_IDS
from training.segmentation.metric import add_to_confusion, empty_confusion, mean_iou
from training.segmentation.pairs import read_pair

_LABEL_OF = np.array(LABEL_IDS, dtype=np.uint8)


class Pair(Protocol):
    """An image and its mask of label ids, of the same size."""

    @property
    def image(self) -> Path: ...

    @property
    def mask(self) -> Path: ...


@dataclass(frozen=True)
class Result:
    """Fractions from 0 to 1. `class_iou` is None for a class that no pixel that counts has or was predicted to have.

    `mean_iou` is the mean of the others, `pixel_accuracy` of all pixels that count, and `loss` their mean cross entropy
    in nats. They are None where no pixel counts, and the loss where it is not finite.
    """

    mean_iou: float | None
    class_iou: dict[str, float | None]
    pixel_accuracy: float | None
    loss: float | None
    images: int
    seconds: float


def evaluate(
    model: nn.Module,
    pairs: Sequence[Pair],
    gang: Gang,
    batch: int,
    workers: int,
    autocast: Autocast,
    layout: torch.memory_format,
    predictions: Path | None = None,
) -> Result:
    """Evaluates rank 0's weights and batch-norm statistics; every rank gets the same result.

    `model` is not wrapped in DDP; `workers` decode in each process. Images of a block that differ in size are run one
    by one. With `predictions` each image's is written there, see `prediction_name`.
    Ranks other than 0 have rank 0's floating-point buffers afterwards. Raises UserError on every rank if one of them
    cannot read an image or its mask, or write a prediction.
    """
    begin = time.perf_counter()
    if predictions is not None:
        together(gang, lambda: _check_folder(predictions, pairs), lambda _: None)
    take_over_buffers(model, gang)
    blocks = blocks_of(len(pairs), batch)[gang.rank :: gang.world_size]

    def part() -> _Counts:
        judge = _Judge(model, gang.device, autocast, layout)
        with (
            inferring(model, repeatable=True),
            closing(read_ahead(lambda block: [_read(pairs[index]) for index in block], blocks, workers)) as samples,
            closing(_Writer(workers)) as writer,
        ):
            for block, read in zip(blocks, samples, strict=True):
                predicted = judge(read)
                if predictions is not None:
                    for index, train_ids in zip(block, predicted, strict=True):
                        writer.write(predictions / prediction_name(pairs[index].image), train_ids.cpu().numpy())
            writer.finish()
        return judge.counts()

    return together(gang, part, lambda parts: _result(parts, len(pairs), begin))


def prediction_name(image: Path) -> str:
    """The PNG of label ids that cityscapesScripts' csEvalPixelLevelSemanticLabeling finds for the image's frame.

    `ulm_000000_000019_leftImg8bit_pred.png` of `ulm_000000_000019_leftImg8bit.png`.
    """
    return f"{image.stem}_pred.png"


class _Sample(NamedTuple):
    """`image` (3, H, W) uint8 RGB and `targets` (H, W) uint8 train ids."""

    image: Tensor
    targets: Tensor


class _Counts(NamedTuple):
    """A rank's confusion matrix, and per image the sum of its pixels' losses."""

    confusion: NDArray[np.int64]
    losses: list[float]


class _Judge:
    """Runs the model on blocks of samples, and counts what it gets right."""

    def __init__(self, model: nn.Module, device: torch.device, autocast: Autocast, layout: torch.memory_format) -> None:
        self._model, self._device, self._autocast, self._layout = model, device, autocast, layout
        self._mean, self._std = (torch.tensor(values, device=device).view(3, 1, 1) for values in (MEAN, STD))
        self._confusion = empty_confusion(device)
        self._losses: list[Tensor] = []

    def __call__(self, samples: list[_Sample]) -> list[Tensor]:
        """(H, W) uint8 train ids predicted for each sample, on the device."""
        return [predicted for same_size in _batches(samples) for predicted in self._run(same_size)]

    def counts(self) -> _Counts:
        losses = torch.cat(self._losses).tolist() if self._losses else []
        return _Counts(self._confusion.cpu().numpy(), losses)

    def _run(self, samples: list[_Sample]) -> Tensor:
        pixels, targets = (self._to_device(torch.stack(column)) for column in zip(*samples, strict=True))
        images = (pixels.float() / 255 - self._mean) / self._std
        with self._autocast():
            scores = self._model(images.contiguous(memory_format=self._layout))
        losses = functional.cross_entropy(scores.float(), targets.long(), ignore_index=IGNORED, reduction="none")
        self._losses.append(losses.double().sum(dim=(1, 2)))
        predicted = scores.argmax(dim=1).to(torch.uint8)
        add_to_confusion(self._confusion, predicted, targets)
        return predicted

    def _to_device(self, values: Tensor) -> Tensor:
        return values.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else values


class _Writer:
    """Writes predictions in threads: compressing one takes as long as the model takes for an image on a GPU."""

    def __init__(self, workers: int) -> None:
        threads = max(workers, 1)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="encode")
        self._under_way: deque[Future[None]] = deque()
        self._most = 2 * threads

    def write(self, path: Path, train_ids: NDArray[np.uint8]) -> None:
        """Raises the UserError of an earlier prediction that could not be written."""
        self._under_way.append(self._pool.submit(_write, path, train_ids))
        if len(self._under_way) > self._most:
            self._under_way.popleft().result()

    def finish(self) -> None:
        while self._under_way:
            self._under_way.popleft().result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _batches(samples: list[_Sample]) -> Iterator[list[_Sample]]:
    if len({sample.targets.shape for sample in samples}) == 1:
        yield samples
    else:
        yield from ([sample] for sample in samples)


def _read(pair: Pair) -> _Sample:
    read = read_pair(pair.image, pair.mask)
    return _Sample(read.image, torch.from_numpy(TRAIN_IDS[read.mask]))


def _check_folder(folder: Path, pairs: Sequence[Pair]) -> None:
    """Makes the folder and writes to it. Raises UserError, also where two predictions would have the same name."""
    for name, count in Counter(prediction_name(pair.image) for pair in pairs).most_common(1):
        if count > 1:
            raise UserError(f"{count} images would have the prediction {folder / name}; give images of different names")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(folder, error) from error


def _write(path: Path, train_ids: NDArray[np.uint8]) -> None:
    try:
        with atomic(path) as partial:
            Image.fromarray(_LABEL_OF[train_ids]).save(partial)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UserError:
    reason = error.strerror or error
    return UserError(f"predictions: cannot write {path}: {reason}; name a folder that every rank may write to")


def _result(parts: list[_Counts], images: int, begin: float) -> Result:
    """The sum of the losses is exact before it is rounded, so that it does not depend on which rank has which image."""
    confusion = np.sum([part.confusion for part in parts], axis=0)
    iou = mean_iou(torch.from_numpy(confusion))
    loss = math.fsum(loss for part in parts for loss in part.losses)
    pixels = int(confusion.sum())
    return Result(
        mean_iou=iou.mean,
        class_iou=dict(zip(CLASS_NAMES, iou.per_class, strict=True)),
        pixel_accuracy=int(confusion.trace()) / pixels if pixels else None,
        loss=loss / pixels if pixels and math.isfinite(loss) else None,
        images=images,
        seconds=time.perf_counter() - begin,
    )
