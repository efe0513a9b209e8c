"""Puts the pairs of a split in place in a prepared set, and records them by city."""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from training.common.errors import UserError
from training.data.conversion.cityscapes import Frame
from training.data.conversion.left_out import BAD_IMAGE, BAD_TRUTH, OTHER_LABELS, OTHER_SIZE, Unusable
from training.data.conversion.truth import draw_label_ids
from training.data.files import link_or_copy
from training.data.manifest import SplitManifest
from training.data.names import MASK_END
from training.data.pictures import picture_size
from training.data.png import check_kind, check_png
from training.data.shards import StoredFile, content_digest, date_folders, record_files
from training.data.workers import Progress, map_ordered
from training.segmentation.args import DEFAULT_TILE
from training.segmentation.centroids import mask_centroids
from training.segmentation.dataset import PARTS, decode_mask
from training.segmentation.labels import check_ids


@dataclass(frozen=True)
class _Placed:
    """What was put in place. `width` and `height` in px; `centroids` are those of the mask, as `mask_centroids` gives them."""

    image: StoredFile
    mask: StoredFile
    width: int
    height: int
    centroids: tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class PlacedSplit:
    """What of a split was put in place: the entries of its shards, centroids by the images' names, and what was left out."""

    held: SplitManifest
    shards: dict[str, str]
    centroids: dict[str, tuple[np.ndarray, np.ndarray]]
    unusable: dict[str, list[str]]


def place_split(split: str, frames: list[Frame], out: Path, workers: int, progress: Progress) -> PlacedSplit:
    """Links or copies images and masks into `out`, and draws the masks that are polygons; frames may be unusable."""
    placed: dict[str, _Placed] = {}
    unusable: dict[str, list[str]] = {}
    files: dict[str, dict[str, StoredFile]] = {}
    for frame, one in zip(frames, map_ordered(partial(_place, out, split), frames, workers), strict=True):
        if isinstance(one, Unusable):
            unusable.setdefault(one.reason, []).append(one.detail)
            progress.step()
            continue
        placed[f"{split}/{frame.file_name}"] = one
        files.setdefault(frame.city, {}).update({_image(split, frame): one.image, _mask(split, frame): one.mask})
        progress.step(1, one.image.bytes + one.mask.bytes)
    shards: dict[str, str] = {}
    for city, of_city in files.items():
        date_folders((out / part / split / city for part in PARTS), of_city)
        shards |= record_files(out, split, city, of_city)
    centroids = {name: one.centroids for name, one in placed.items()}
    return PlacedSplit(_summed_up(list(placed.values())), shards, centroids, unusable)


def _image(split: str, frame: Frame) -> str:
    return f"{PARTS[0]}/{split}/{frame.file_name}"


def _mask(split: str, frame: Frame) -> str:
    return f"{PARTS[1]}/{split}/{frame.city}/{frame.name}{MASK_END}"


def _place(out: Path, split: str, frame: Frame) -> _Placed | Unusable:
    """Checks a pair and puts it in place. Raises OSError."""
    reason = BAD_IMAGE
    try:
        picture = frame.image.read_bytes()
        width, height = _picture_size(picture, frame.image)
        reason = BAD_TRUTH
        mask = _mask_content(frame)
        ids = decode_mask(mask, frame.truth)
        reason = OTHER_SIZE
        frame.check_truth_size(ids.shape, width, height)
        reason = OTHER_LABELS
        check_ids(np.flatnonzero(np.bincount(ids.ravel(), minlength=256)), str(frame.truth))
    except UserError as error:
        return Unusable(reason, str(error))
    except (PermissionError, IsADirectoryError) as error:
        return Unusable(reason, f"{error.filename}: {error.strerror}")
    image_path, mask_path = out / _image(split, frame), out / _mask(split, frame)
    for path in (image_path, mask_path):
        path.parent.mkdir(parents=True, exist_ok=True)
    link_or_copy(frame.image, image_path)
    if frame.has_polygons:
        mask_path.write_bytes(mask)
    else:
        link_or_copy(frame.truth, mask_path)
    stored = (StoredFile(len(content), content_digest(content)) for content in (picture, mask))
    return _Placed(*stored, width, height, mask_centroids(ids, DEFAULT_TILE))


def _picture_size(content: bytes, path: Path) -> tuple[int, int]:
    if path.suffix.lower() != ".png":
        return picture_size(path)
    header = check_png(content, path)
    check_kind(header, path)
    return header.width, header.height


def _mask_content(frame: Frame) -> bytes:
    if frame.has_polygons:
        file = io.BytesIO()
        draw_label_ids(frame.truth).save(file, format="png")
        return file.getvalue()
    content = frame.truth.read_bytes()
    check_png(content, frame.truth, "labelIds")
    return content


def _summed_up(placed: list[_Placed]) -> SplitManifest:
    sizes = {(one.width, one.height) for one in placed}
    width, height = sizes.pop() if len(sizes) == 1 else (None, None)
    return SplitManifest(
        images=len(placed),
        annotations=0,
        image_bytes=sum(one.image.bytes for one in placed),
        label_bytes=sum(one.mask.bytes for one in placed),
        width=width,
        height=height,
    )
