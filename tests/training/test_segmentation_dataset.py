"""The folder of images and masks as the segmentation program lists it; `write_set` also serves its other tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from training.common.errors import UserError
from training.common.gang import Gang
from training.data.manifest import Manifest, SplitManifest
from training.segmentation.dataset import SegmentationSet, total_bytes
from training.segmentation.labels import LABEL_IDS
from training.wire.schema import write_json

WIDTH, HEIGHT = 255, 127  # odd: no pixel of a scaled image lies exactly between two of the source
ROAD, SKY, POLE = LABEL_IDS[0], LABEL_IDS[10], LABEL_IDS[5]
BLOCK = 12  # px; image i has a block of class 11 + i, its upper left corner at `block_corner(i)`
ALONE = Gang(0, 0, 1, 0, torch.device("cpu"), None)


def block_corner(index: int) -> tuple[int, int]:
    """Row and column."""
    return 20 + 15 * index, 30 + 40 * index


def label_ids(index: int) -> np.ndarray:
    """Sky above, road below, a strip that no class is, and a block of a class that no other image has."""
    ids = np.full((HEIGHT, WIDTH), SKY, np.uint8)
    ids[HEIGHT // 2 :] = ROAD
    ids[-10:] = 1
    top, left = block_corner(index)
    ids[top : top + BLOCK, left : left + BLOCK] = LABEL_IDS[11 + index]
    return ids


def write_set(
    root: Path, images: int = 5, split: str = "train", nested: bool = False, ending: str = ".png", city: str = "ulm"
) -> Path:
    """Up to five pairs, `<city>_000000_000019` and on; pictures are smooth, so that JPEG keeps them."""
    parts = [root / (f"{part}_trainvaltest/{part}" if nested else part) for part in ("leftImg8bit", "gtFine")]
    pictures, masks = (part / split / city for part in parts)
    for folder in (pictures, masks):
        folder.mkdir(parents=True)
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    for index in range(images):
        waves = [127 + 100 * np.sin((rows * a + columns * b) / 30 + index) for a, b in ((1, 2), (2, -1), (-1, 1))]
        name = f"{city}_{index:06d}_000019"
        Image.fromarray(np.stack(waves, axis=2).astype(np.uint8)).save(
            pictures / f"{name}_leftImg8bit{ending}", **({} if ending == ".png" else {"quality": 95})
        )
        Image.fromarray(label_ids(index)).save(masks / f"{name}_gtFine_labelIds.png")
    return root


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEOUT_CACHE_DIR", str(tmp_path / "cache"))


def opened(root: Path, split: str = "train", cv: int = 0) -> SegmentationSet:
    return SegmentationSet.open(root, split, cv, lambda line: None)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("ending", [".png", ".jpg"])
def test_both_layouts_are_listed_in_order(tmp_path, nested, ending):
    write_set(tmp_path / "set", nested=nested, ending=ending, city="ulm")
    root = write_set(tmp_path / "set", 2, nested=nested, ending=ending, city="aachen")
    found = opened(root)
    names = [f"train/aachen/aachen_{i:06d}_000019" for i in range(2)] + [
        f"train/ulm/ulm_{i:06d}_000019" for i in range(5)
    ]
    assert [found.name(i) for i in range(len(found))] == [f"{name}_leftImg8bit{ending}" for name in names]
    assert all(found.image(i).is_file() for i in range(7))
    assert [found.mask(i).relative_to(found.masks).as_posix() for i in range(7)] == [
        f"{name}_gtFine_labelIds.png" for name in names
    ]
    assert found.listing.has_jpeg == (ending == ".jpg")


def test_scenes_as_the_generator_writes_them_are_listed(scenes):
    assert len(opened(scenes)) == 4 and len(opened(scenes, "val")) == 2


def test_cv_3_trains_on_train_and_val_and_still_validates_on_val(tmp_path):
    write_set(tmp_path / "set", 3)
    root = write_set(tmp_path / "set", 2, split="val", city="lindau")
    assert [len(opened(root, split, cv)) for cv in (0, 3) for split in ("train", "val")] == [3, 2, 5, 2]
    both = opened(root, "train", 3)
    assert both.name(0).startswith("train/ulm/") and both.name(4).startswith("val/lindau/")


@pytest.mark.parametrize("cv", [1, 2, 7])
def test_other_splits_are_refused_by_name(tmp_path, cv):
    with pytest.raises(UserError, match=f"--cv {cv}"):
        opened(write_set(tmp_path / "set"), cv=cv)


def test_only_pairs_are_taken_and_the_rest_is_counted(tmp_path):
    root = write_set(tmp_path / "set")
    (root / "gtFine/train/ulm/ulm_000001_000019_gtFine_labelIds.png").unlink()
    (root / "leftImg8bit/train/ulm/ulm_000002_000019_leftImg8bit.png").unlink()
    (root / "leftImg8bit/train/ulm/ulm_000003_000019_leftImg8bit.jpg").write_bytes(b"twice")
    (root / "leftImg8bit/train/ulm/._ulm_000004_000019_leftImg8bit.png").write_bytes(b"of another system")
    (root / "gtFine/train/ulm/ulm_000004_000019_gtFine_color.png").write_bytes(b"another kind")
    told = []
    found = SegmentationSet.open(root, "train", 0, told.append)
    assert [found.name(i)[14:20] for i in range(len(found))] == ["000000", "000003", "000004"]
    listing = found.listing
    assert (listing.images_without_mask, listing.masks_without_image, listing.second_images) == (1, 1, 1)
    assert "1 images without a mask, 1 masks without an image" in told[-1]


def test_no_pair_at_all_is_refused_saying_what_was_looked_for(tmp_path):
    root = write_set(tmp_path / "set")
    with pytest.raises(UserError, match=r"leftImg8bit/val/<city>/\*_leftImg8bit\.png.*neither images nor masks"):
        opened(root, "val")
    for mask in root.glob("gtFine/train/ulm/*"):
        mask.unlink()
    with pytest.raises(
        UserError, match=r"gtFine/train/<city>/\*_gtFine_labelIds\.png; there are 5 images without a mask"
    ):
        opened(root)


def test_a_folder_that_is_not_such_a_set_is_refused(tmp_path):
    with pytest.raises(UserError, match="there is no folder"):
        opened(tmp_path / "nowhere")
    with pytest.raises(UserError, match="neither leftImg8bit nor leftImg8bit_trainvaltest/leftImg8bit"):
        opened(tmp_path)


def test_folders_are_listed_once_until_a_file_comes_or_goes(tmp_path):
    root = write_set(tmp_path / "set", 3)
    told = []
    first = SegmentationSet.open(root, "train", 0, told.append)
    assert len(told) == 2
    assert SegmentationSet.open(root, "train", 0, told.append).listing == first.listing and len(told) == 2
    (root / "leftImg8bit/train/ulm/ulm_000001_000019_leftImg8bit.png").unlink()
    later = opened(root)
    assert len(later) == 2 and later.listing.fingerprint != first.listing.fingerprint
    assert first.name(1).startswith("train/ulm/ulm_000001")  # what is mapped stays as it was
    write_set(root, 2, city="jena")
    assert len(opened(root)) == 4


def test_the_bytes_of_images_and_masks_are_looked_up_or_taken_from_the_manifest(tmp_path):
    root = write_set(tmp_path / "set")
    found = opened(root)
    sizes = [sum(p.stat().st_size for p in root.glob(f"{part}/train/ulm/*")) for part in ("leftImg8bit", "gtFine")]
    assert total_bytes(found, ALONE) == tuple(sizes)
    for images, known in ((5, (500, 50)), (6, tuple(sizes))):
        split = SplitManifest(images, 0, 500, 50, WIDTH, HEIGHT)
        write_json(root / "manifest.json", Manifest(1, "segmentation", 1, "", "", [], {"train": split}, {}))
        assert total_bytes(found, ALONE) == known
    found.image(3).unlink()
    with pytest.raises(UserError, match=r"ulm_000003_000019_leftImg8bit\.png was listed"):
        total_bytes(found, ALONE)
