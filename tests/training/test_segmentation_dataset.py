"""The folder of images and masks as the segmentation program lists it; `write_set` also serves its other tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from training.common.errors import UserError
from training.common.gang import Gang
from training.data.manifest import Generator, Manifest, SplitManifest, write_manifest
from training.segmentation.dataset import SegmentationSet, total_bytes
from training.segmentation.labels import LABEL_IDS

pytestmark = pytest.mark.usefixtures("cache")

WIDTH, HEIGHT = 255, 127  # odd: no pixel of a scaled image lies exactly between two of the source
ROAD, SKY, POLE = LABEL_IDS[0], LABEL_IDS[10], LABEL_IDS[5]
BLOCK = 12  # px; image i has a block of class 11 + i, its upper left corner at `block_corner(i)`
ALONE = Gang(0, 0, 1, 0, torch.device("cpu"), None)
MADE_UP = Generator("made up", 1, {}, {})


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


CITIES = ["val/bonn", "val/lindau", "train/aachen", "train/jena", "train/ulm", "train/weimar", "train/zurich"]


def write_cities(root: Path, names: list[str] = CITIES, nested: bool = False) -> Path:
    """A pair in each."""
    for split, city in (name.split("/") for name in names):
        write_set(root, 1, split, nested, city=city)
    return root


def cities(data: SegmentationSet) -> list[str]:
    return [data.name(index).rpartition("/")[0] for index in range(len(data))]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("cv", "first"), [(0, 0), (1, 2), (2, 4)])  # thirds of seven cities, rounded down
def test_cv_rotates_the_cities_as_the_reference_does(tmp_path, nested, cv, first):
    root = write_cities(tmp_path / "set", nested=nested)
    for _ in ("listed", "kept"):
        train, val = (opened(root, split, cv) for split in ("train", "val"))
        assert cities(val) == CITIES[first : first + 2]
        assert cities(train) == CITIES[:first] + CITIES[first + 2 :]
        assert all(
            data.image(i).is_file() and data.mask(i).is_file() for data in (train, val) for i in range(len(data))
        )


def test_of_the_real_cities_the_reference_validates_on_these(tmp_path):
    """Eighteen cities of train and three of val, as Cityscapes has them."""
    train = (
        "aachen bochum bremen cologne darmstadt dusseldorf erfurt hamburg hanover jena krefeld monchengladbach "
        "strasbourg stuttgart tubingen ulm weimar zurich"
    )
    names = [
        *(f"val/{name}" for name in ("frankfurt", "lindau", "munster")),
        *(f"train/{name}" for name in train.split()),
    ]
    for part in ("leftImg8bit", "gtFine"):
        for name in names:
            (tmp_path / part / name).mkdir(parents=True)
            end = {"leftImg8bit": "leftImg8bit", "gtFine": "gtFine_labelIds"}[part]
            (tmp_path / part / name / f"x_000000_000019_{end}.png").touch()
    assert cities(opened(tmp_path, "val", 0)) == names[:3]
    assert cities(opened(tmp_path, "val", 1)) == ["train/darmstadt", "train/dusseldorf", "train/erfurt"]
    assert cities(opened(tmp_path, "val", 2)) == ["train/monchengladbach", "train/strasbourg", "train/stuttgart"]


def test_the_lists_of_rotated_cities_follow_what_comes_and_goes(tmp_path):
    root = write_cities(tmp_path / "set")
    before = {cv: cities(opened(root, "val", cv)) for cv in (0, 1, 2)}
    write_set(root, 2, city="bremen")  # an eighth city: thirds begin at 2 and 5
    write_set(root, 1, "val", city="aalen")  # and a ninth, at 3 and 6, with three for validation
    assert {cv: cities(opened(root, "val", cv)) for cv in (0, 1, 2)} == {
        0: ["val/aalen", *before[0]],
        1: ["train/aachen", "train/bremen", "train/bremen", "train/jena"],
        2: ["train/ulm", "train/weimar", "train/zurich"],
    }


def test_a_split_of_rotated_cities_that_cannot_be_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"--cv 1 validates on as many cities as .*/val has, and that has none"):
        opened(write_set(tmp_path / "train only"), cv=1)
    root = write_set(tmp_path / "val only", split="val")
    with pytest.raises(UserError, match=r"leftImg8bit/<split>/<city>/.*neither .* in the 0 cities of train-cv1"):
        opened(root, cv=1)


def test_another_split_is_refused_by_name(tmp_path):
    with pytest.raises(UserError, match="--cv 7 is no split"):
        opened(write_set(tmp_path / "set"), cv=7)


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
        write_manifest(root, Manifest(2, "segmentation", MADE_UP, "", "", [], {"train": split}, {}))
        assert total_bytes(found, ALONE) == known
    found.image(3).unlink()
    with pytest.raises(UserError, match=r"ulm_000003_000019_leftImg8bit\.png was listed"):
        total_bytes(found, ALONE)


def test_the_bytes_of_rotated_cities_are_looked_up_though_the_manifest_has_as_many_images(tmp_path):
    root = write_cities(tmp_path / "set")
    splits = {name: SplitManifest(images, 0, 500, 50, WIDTH, HEIGHT) for name, images in (("train", 5), ("val", 2))}
    write_manifest(root, Manifest(2, "segmentation", MADE_UP, "", "", [], splits, {}))
    assert total_bytes(opened(root), ALONE) == (500, 50)
    rotated = opened(root, cv=1)
    assert len(rotated) == 5
    sizes = [sum(path(i).stat().st_size for i in range(5)) for path in (rotated.image, rotated.mask)]
    assert total_bytes(rotated, ALONE) == tuple(sizes)
