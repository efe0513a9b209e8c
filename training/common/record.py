"""Which images a rank consumed in which step, for those who must know."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from training.common.loader import Batch

IMAGES_FILE = "images.jsonl"


def image_record(folder: Path) -> Callable[[int, int, Batch], None]:
    """Appends `{"epoch": 0, "step": 3, "images": [ids], "padded": 0}` to `folder`/images.jsonl for each batch."""
    file = (folder / IMAGES_FILE).open("a", encoding="utf-8", buffering=1)

    def record(epoch: int, step: int, batch: Batch) -> None:
        ids = list(batch.image_ids)
        file.write(json.dumps({"epoch": epoch, "step": step, "images": ids, "padded": batch.padded_images}) + "\n")

    return record
