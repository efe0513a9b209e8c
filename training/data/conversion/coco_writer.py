"""Writes a COCO annotation file frame by frame: it is never whole in memory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import TracebackType

from training.data.conversion.annotations import Converted
from training.data.conversion.categories import CATEGORIES


class CocoWriter:
    """The COCO instances document of a split (https://cocodataset.org/#format-data), written to `path`.

    Image ids count from 1 in the order in which frames are added, annotation ids from 1 over the split. The list of
    images follows that of annotations, and is kept beside `path` until then.
    """

    def __init__(self, path: Path, split: str) -> None:
        categories = [
            {"id": label, "name": name, "supercategory": group} for label, (name, group) in CATEGORIES.items()
        ]
        info = {"description": f"Cityscapes, {split}, instances of {len(CATEGORIES)} classes"}
        head = {"info": info, "licenses": [], "categories": categories}
        self.images = self.annotations = self.trained = 0
        self._images_path = path.with_name(f".{path.name}.images")
        self._images_file = self._images_path.open("w+", encoding="ascii")
        self._file = path.open("w", encoding="ascii")
        self._file.write(f'{json.dumps(head, separators=(",", ":"))[:-1]},"annotations":[')

    def __enter__(self) -> CocoWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._file, self._images_file:
            if kind is None:
                self._file.write('],"images":[')
                self._images_file.seek(0)
                shutil.copyfileobj(self._images_file, self._file)
                self._file.write("]}\n")
        self._images_path.unlink()

    def add(self, frame: Converted) -> None:
        """Adds a frame and its objects."""
        self.images += 1
        image = {"id": self.images, "file_name": frame.file_name, "width": frame.width, "height": frame.height}
        self._images_file.write(("," if self.images > 1 else "") + json.dumps(image, separators=(",", ":")))
        for tail in frame.objects:
            self.annotations += 1
            comma = "," if self.annotations > 1 else ""
            self._file.write(f'{comma}{{"id":{self.annotations},"image_id":{self.images},{tail}')
        self.trained += frame.trained
