"""The documents of shards become one, and its index, in memory that does not grow with the set."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest
from index_data import Said, as_lists, plain

from training.data.errors import DataError
from training.data.indexing.index import open_index
from training.data.inflation.coco_join import join_documents

IMAGES = 50


def write_documents(folder: Path, count: int) -> list[Path]:
    """Documents of 50 images. Every fifth image has no box, and the second document no annotation at all."""
    folder.mkdir()
    paths = []
    for number in range(count):
        ids = range(1 + number * IMAGES, 1 + (number + 1) * IMAGES)
        document = {
            "images": [{"id": i, "file_name": f"ulm_{number}/ulm_{i}.png", "width": 2048, "height": 1024} for i in ids],
            "annotations": [
                {
                    "id": 10 * i + k,
                    "image_id": i,
                    "category_id": 26,
                    "bbox": [k, i % 900, 20, 9],
                    "area": 99,
                    "iscrowd": 0,
                }
                for i in ids
                for k in range(8)
                if i % 5 and number != 1
            ],
            "categories": [{"id": 26, "name": "car", "supercategory": "vehicle"}],
        }
        path = folder / f"ulm_{number}.json"
        path.write_text(json.dumps(document) + "\n", encoding="utf-8")
        paths.append(path)
    return paths


def join(folder: Path, count: int, workers: int = 1) -> tuple[Path, int]:
    """The joined document and the most bytes of memory that joining took."""
    documents = write_documents(folder / "parts", count)
    tracemalloc.start()
    try:
        assert join_documents(documents, folder / "whole.json", workers) == (count - 1) * IMAGES * 4 // 5 * 8
        return folder / "whole.json", tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("workers", [1, 2])
def test_the_document_has_what_the_parts_have_in_their_order(tmp_path: Path, cache: Path, workers: int) -> None:
    path, _ = join(tmp_path, 4, workers)
    parts = [json.loads((tmp_path / "parts" / f"ulm_{number}.json").read_text()) for number in range(4)]
    whole = json.loads(path.read_text())
    assert whole["categories"] == parts[0]["categories"]
    for key in ("images", "annotations"):
        assert whole[key] == [record for part in parts for record in part[key]]
    told = Said()
    assert as_lists(open_index(path, told)) == plain(path.read_text()) and not told


def test_ten_times_the_shards_take_no_more_memory(tmp_path: Path) -> None:
    peaks = []
    for count in (10, 100):
        (tmp_path / f"{count}").mkdir()
        peaks.append(join(tmp_path / f"{count}", count)[1])
    assert peaks[1] < 1.2 * peaks[0] + 100 * IMAGES * 40  # of images without a box the names are kept


def test_a_document_that_is_cut_off_is_named(tmp_path: Path) -> None:
    documents = write_documents(tmp_path / "parts", 2)
    documents[1].write_bytes(documents[1].read_bytes()[:500])
    with pytest.raises(DataError, match=r"ulm_1\.json is not JSON"):
        join_documents(documents, tmp_path / "whole.json", 1)
    assert not (tmp_path / "whole.json").exists() and not list(tmp_path.glob(".*"))
