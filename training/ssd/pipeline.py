"""The input pipeline in NVIDIA DALI: read, crop around boxes, decode, resize, colour, normalise, encode boxes."""

from __future__ import annotations

import re
from typing import Any

from nvidia.dali import fn, math, pipeline_def, types
from nvidia.dali.plugin.base_iterator import LastBatchPolicy
from nvidia.dali.plugin.pytorch import DALIGenericIterator
from torchvision.ops import box_convert

from training.common.errors import TrainingError, UserError
from training.common.gang import Gang
from training.common.loader import Batch, Usage
from training.ssd.annotations import Annotations
from training.ssd.boxes import IMAGE_SIZE, MATCH_IOU, SCALE_WH, SCALE_XY, default_boxes
from training.ssd.dataset import Layout, steps_per_pass

_READER = "reader"
_OUTPUTS = ["images", "offsets", "labels", "image_ids"]
_QUEUE_DEPTH = 2
_READER_QUEUE_DEPTH = 1
_MEAN = [255 * value for value in (0.485, 0.456, 0.406)]
_STD = [255 * value for value in (0.229, 0.224, 0.225)]
_CROP_OVERLAPS = [0.0, 0.1, 0.3, 0.5, 0.7, 0.9]


class DaliLoader:
    """The training split's shard of one rank. Building it reads the annotation file and no image.

    DALI's `shuffle_after_epoch` reorders the whole set for every pass with a seed that is the same on every rank, so a
    rank's shard is another part of the data in every pass (`stick_to_shard` only names the position of its shard).
    Shards may differ by one image; `pad_last_batch` repeats a shard's last image until all have the same whole number
    of batches, and the padding is counted.
    """

    def __init__(
        self,
        layout: Layout,
        annotations: Annotations,
        gang: Gang,
        batch_per_gpu: int,
        threads: int,
        seed: int,
        augment: bool = True,
    ) -> None:
        self.steps_per_pass = steps_per_pass(len(annotations.file_names), gang.world_size, batch_per_gpu)
        self._layout = layout
        self._file_names = annotations.file_names
        self._batch = batch_per_gpu
        self._steps = 0
        self._seen: set[int] = set()
        self._seen_in_pass: set[int] = set()
        self._seen_in_first_pass: set[int] = set()
        pipeline = _ssd(
            layout,
            gang,
            augment,
            batch_size=batch_per_gpu,
            num_threads=threads,
            device_id=gang.device.index,
            seed=seed + gang.rank,
            prefetch_queue_depth=_QUEUE_DEPTH,
        )
        pipeline.build()
        found = pipeline.reader_meta(_READER)["epoch_size"]
        if found != len(self._file_names):
            raise UserError(
                f"{layout.annotations}: DALI finds {found} images with boxes, expected {len(self._file_names)}"
            )
        self._batches = DALIGenericIterator(
            [pipeline], _OUTPUTS, size=-1, last_batch_policy=LastBatchPolicy.FILL, prepare_first_batch=False
        )

    def next_batch(self) -> Batch:
        try:
            (tensors,) = next(self._batches)
        except RuntimeError as error:
            raise TrainingError(
                f"the input pipeline failed while step {self._steps} waited for its batch: {_cause(error)}"
            ) from error
        if self._steps % self.steps_per_pass == 0:
            self._seen_in_pass = set()
        if self._steps == 0:
            self._seen_in_first_pass = self._seen_in_pass
        self._steps += 1
        new = set(tensors["image_ids"].flatten().tolist()) - self._seen_in_pass
        self._seen_in_pass |= new
        self._seen |= new
        inputs = tensors["images"], tensors["offsets"], tensors["labels"].squeeze(-1)
        return Batch(inputs, images=self._batch, padded_images=self._batch - len(new))

    def usage(self) -> Usage:
        """`prefetched_images`: the batches that DALI's queues can hold beyond those handed out, and the next image."""
        return Usage(
            distinct_files=len(self._seen),
            distinct_bytes=self._bytes_of(self._seen),
            first_pass_distinct_bytes=self._bytes_of(self._seen_in_first_pass),
            prefetched_images=(_QUEUE_DEPTH + _READER_QUEUE_DEPTH) * self._batch + 1 if self._steps else 0,
        )

    def _bytes_of(self, image_ids: set[int]) -> int:
        return self._layout.image_bytes(self._file_names[i] for i in image_ids)


def _cause(error: RuntimeError) -> str:
    """The operator and the reason in DALI's message, whose other lines are its own stack."""
    text = str(error)
    operator = re.search(r"nvidia\.dali\.fn\.[\w.]+", text)
    reason = text.partition("encountered:")[2].strip().partition("\n")[0] or text.partition("\n")[0]
    return f"{operator.group()}: {reason}" if operator else reason


@pipeline_def
def _ssd(layout: Layout, gang: Gang, augment: bool) -> tuple[Any, ...]:
    device = "gpu" if gang.device.type == "cuda" else "cpu"
    files, boxes, labels, image_ids = fn.readers.coco(
        name=_READER,
        file_root=str(layout.images),
        annotations_file=str(layout.annotations),
        shard_id=gang.rank,
        num_shards=gang.world_size,
        shuffle_after_epoch=True,
        pad_last_batch=True,
        skip_empty=True,
        include_iscrowd=False,
        ratio=True,
        ltrb=True,
        image_ids=True,
        dont_use_mmap=True,
        prefetch_queue_depth=_READER_QUEUE_DEPTH,
    )
    boxes = math.clamp(boxes, 0.0, 1.0)
    if augment:
        anchor, shape, boxes, labels = fn.random_bbox_crop(
            boxes,
            labels,
            aspect_ratio=[0.5, 2.0],
            scaling=[0.3, 1.0],
            thresholds=_CROP_OVERLAPS,
            allow_no_crop=True,
            num_attempts=1,
            bbox_layout="xyXY",
        )
        images = fn.decoders.image_slice(files, anchor, shape, device="cpu", output_type=types.RGB)
        mirror = fn.random.coin_flip(probability=0.5)
        boxes = fn.bb_flip(boxes, ltrb=True, horizontal=mirror)
    else:
        images, mirror = fn.decoders.image(files, device="cpu", output_type=types.RGB), 0
    images = images.gpu() if device == "gpu" else images
    images = fn.resize(images, size=[IMAGE_SIZE, IMAGE_SIZE])
    if augment:
        images = fn.hsv(
            images,
            hue=fn.random.uniform(range=[-0.5, 0.5]),
            saturation=fn.random.uniform(range=[0.5, 1.5]),
        )
        images = fn.brightness_contrast(
            images,
            brightness=fn.random.uniform(range=[0.875, 1.125]),
            contrast=fn.random.uniform(range=[0.5, 1.5]),
            contrast_center=128,
        )
    images = fn.crop_mirror_normalize(
        images, mirror=mirror, dtype=types.FLOAT, output_layout="CHW", mean=_MEAN, std=_STD
    )
    offsets, labels = fn.box_encoder(
        boxes,
        labels,
        anchors=box_convert(default_boxes(), "cxcywh", "xyxy").flatten().tolist(),
        criteria=MATCH_IOU,
        offset=True,
        scale=1.0,
        stds=[SCALE_XY, SCALE_XY, SCALE_WH, SCALE_WH],
    )
    if device == "gpu":
        offsets, labels = offsets.gpu(), labels.gpu()
    return images, offsets, labels, image_ids
