"""The names of the pairs in a set's folders, written to files that all ranks of a node map, a few folders at a time."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from training.common.errors import UserError
from training.data.indexing.arrays import ArrayWriter, map_array
from training.data.names import IMAGE_ENDS, MASK_END
from training.wire.schema import read_json, write_json

City = tuple[str, Path, Path]
"""`<split>/<folder>` and the folders of its images and masks, of which one may not be there."""

Listed = tuple["Listing", np.ndarray, np.ndarray]
"""With (pairs + 1,) int64 where each name begins and ends, and the uint8 names themselves."""

_VERSION = 2  # one more whenever the same folders give another listing
_META, _OFFSETS, _NAMES = "meta.json", "offsets.npy", "names.npy"
_FOLDERS_AT_ONCE = 16


@dataclass(frozen=True)
class Listing:
    """What the folders held. Files without their other half are left out; so is a second image of the same frame.

    `fingerprint` is of the folders and their dates, `names_sha256` of the images' names.
    """

    version: int
    fingerprint: str
    names_sha256: str
    images_without_mask: int
    masks_without_image: int
    second_images: int
    has_jpeg: bool

    def left_out(self) -> str:
        """`2 images without a mask, 1 masks without an image`; empty where nothing is left out."""
        counts = {
            "images without a mask": self.images_without_mask,
            "masks without an image": self.masks_without_image,
            "second images of the same frame": self.second_images,
        }
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def write_listing(folder: Path, fingerprint: str, cities: list[City]) -> tuple[Listing, int]:
    """Lists the folders into `folder`, and gives the listing and the number of pairs. Raises UserError, OSError."""
    digest, end = hashlib.sha256(), 0
    without_mask = without_image = seconds = 0
    has_jpeg = False
    with ArrayWriter(folder / _NAMES, np.uint8) as names, ArrayWriter(folder / _OFFSETS, np.int64) as offsets:
        offsets.append(np.zeros(1))
        for city, image_names, mask_names in _listed(cities):
            frames = {name[: -len(MASK_END)] for name in mask_names}
            pairs: list[bytes] = []
            before = ""
            for name in image_names:
                frame = _frame(name)
                if frame == before:
                    seconds += 1
                elif frame in frames:
                    pairs.append(os.fsencode(f"{city}/{name}"))
                else:
                    without_mask += 1
                before = frame
            without_image += len(frames) - len(pairs)
            has_jpeg = has_jpeg or any(not name.endswith(b".png") for name in pairs)
            joined = b"".join(pairs)
            digest.update(joined)
            names.append(np.frombuffer(joined, dtype=np.uint8))
            offsets.append(end + np.cumsum([len(name) for name in pairs], dtype=np.int64))
            end += len(joined)
    digest.update(map_array(folder / _OFFSETS).data)
    listing = Listing(_VERSION, fingerprint, digest.hexdigest(), without_mask, without_image, seconds, has_jpeg)
    write_json(folder / _META, listing)
    return listing, offsets.rows - 1


def load_listing(folder: Path) -> Listed | None:
    """The listing in a folder, or None where none is that is whole and of this version."""
    try:
        listing = read_json(Listing, folder / _META)
        offsets, names = map_array(folder / _OFFSETS), map_array(folder / _NAMES)
        sound = offsets.dtype == np.int64 and names.dtype == np.uint8 and offsets[-1] == len(names)
    except Exception:  # numpy's reader meets damage with many kinds of error, and all mean the same
        return None
    return (listing, offsets, names) if sound and listing.version == _VERSION else None


def mask_name(image_name: str) -> str:
    return f"{_frame(image_name)}{MASK_END}"


def _listed(cities: list[City]) -> Iterator[tuple[str, list[str], list[str]]]:
    """The names of each city's images and masks, by frame. Few folders are listed ahead of the one that is asked for."""
    ahead: deque[tuple[str, Future[list[str]], Future[list[str]]]] = deque()
    with ThreadPoolExecutor(_FOLDERS_AT_ONCE) as threads:
        for city, images, masks in cities:
            ahead.append((city, threads.submit(_files, images, IMAGE_ENDS), threads.submit(_files, masks, (MASK_END,))))
            if len(ahead) == _FOLDERS_AT_ONCE:
                yield _results(*ahead.popleft())
        while ahead:
            yield _results(*ahead.popleft())


def _results(city: str, images: Future[list[str]], masks: Future[list[str]]) -> tuple[str, list[str], list[str]]:
    return city, images.result(), masks.result()


def _files(folder: Path, ends: tuple[str, ...]) -> list[str]:
    """The names that end so, by frame. A listing only: what each name stands for is not looked up."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"cannot list {folder}: {error.strerror}") from error
    return sorted((name for name in names if name.endswith(ends) and not name.startswith(".")), key=_sort_key)


def _sort_key(name: str) -> tuple[str, str]:
    return _frame(name), name


def _frame(name: str) -> str:
    return name[: name.rindex("_")] if name.endswith(IMAGE_ENDS) else name[: -len(MASK_END)]
