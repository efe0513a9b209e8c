"""Where classes are, how that is kept on the node, and the epochs drawn from it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_segmentation_dataset import BLOCK, block_corner, label_ids, opened, write_set

from training.common.errors import UserError
from training.common.sampler import Sampler
from training.segmentation.centroids import Centroids, mask_centroids, open_centroids
from training.segmentation.dataset import decode_mask
from training.segmentation.labels import LABEL_IDS, TRAIN_IDS

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.usefixtures("cache")


def quiet(line: str) -> None:
    pass


def centroids_of(counts: dict[int, int], images: int) -> Centroids:
    """So many centroids for each class, around the images one after the other."""
    offsets = np.concatenate([[0], np.cumsum([counts.get(number, 0) for number in range(19)])])
    total = int(offsets[-1])
    return Centroids(images, offsets, np.arange(total, dtype=np.int32) % images, np.zeros((total, 2), np.uint16))


@pytest.mark.parametrize("tile", [1024, 100, 64])
def test_centroids_are_the_means_of_a_classs_pixels_in_each_tile(tile):
    ids = label_ids(2)
    wanted = set()
    for top in range(0, ids.shape[0], tile):
        for left in range(0, ids.shape[1], tile):
            part = TRAIN_IDS[ids[top : top + tile, left : left + tile]]
            for number in set(np.unique(part).tolist()) - {255}:
                rows, columns = np.nonzero(part == number)
                wanted.add((number, top + int(rows.mean()), left + int(columns.mean())))
    classes, places = mask_centroids(ids, tile)
    assert {(number, *place) for number, place in zip(classes.tolist(), places.tolist(), strict=True)} == wanted
    assert len(classes) == len(wanted)


def test_every_class_of_every_mask_is_found_once_for_the_node(tmp_path):
    data = opened(write_set(tmp_path / "set"))
    told = []
    found = open_centroids(data, 1024, told.append)
    assert found.present() == [0, 10, 11, 12, 13, 14, 15]
    for index in range(5):
        (k,) = range(*found.class_offsets[11 + index : 13 + index].tolist())
        top, left = block_corner(index)
        assert found.image[k] == index
        assert np.abs(found.places[k] - (np.array([top, left]) + BLOCK / 2)).max() <= 1
    assert "no pixel of sidewalk, building" in told[1]
    again = open_centroids(data, 1024, told.append)
    assert len(told) == 2 and np.array_equal(again.places, found.places)
    assert len(open_centroids(data, 64, told.append).image) > len(found.image)


def test_several_processes_find_the_same_as_one(tmp_path):
    root = tmp_path / "set"
    random = np.random.default_rng(0)
    for part in ("leftImg8bit", "gtFine"):
        (root / part / "train" / "ulm").mkdir(parents=True)
    wanted = []
    for index in range(150):
        (root / f"leftImg8bit/train/ulm/ulm_{index:06d}_leftImg8bit.png").touch()
        ids = random.choice([*LABEL_IDS, 0], (8, 16)).astype(np.uint8)
        Image.fromarray(ids).save(root / f"gtFine/train/ulm/ulm_{index:06d}_gtFine_labelIds.png")
        wanted += [
            (int(c), index, *p) for c, p in zip(*(part.tolist() for part in mask_centroids(ids, 10)), strict=True)
        ]
    found = open_centroids(opened(root), 10, quiet)
    classes = np.repeat(np.arange(19), np.diff(found.class_offsets)).tolist()
    rows = zip(classes, found.image.tolist(), found.places.tolist(), strict=True)
    assert sorted((c, i, *p) for c, i, p in rows) == sorted(wanted)


@pytest.mark.parametrize("damage", ["unknown id", "colours", "cut off"])
def test_a_mask_that_cannot_be_used_is_named(tmp_path, damage):
    data = opened(write_set(tmp_path / "set"))
    mask = data.mask(3)
    if damage == "cut off":
        mask.write_bytes(mask.read_bytes()[:90])
    else:
        image = Image.fromarray(np.full((8, 8), 77, np.uint8))
        (image.convert("RGB") if damage == "colours" else image).save(mask)
    wanted = {"unknown id": "label id 77", "colours": "no 8-bit grey", "cut off": "cannot be decoded"}[damage]
    with pytest.raises(UserError, match=rf"ulm_000003_000019_gtFine_labelIds\.png.*{wanted}"):
        open_centroids(data, 1024, quiet)
    Image.fromarray(label_ids(3)).save(mask)
    assert len(open_centroids(data, 1024, quiet).present()) == 7


def test_each_split_of_rotated_cities_has_centroids_of_its_own(tmp_path):
    root = write_set(tmp_path / "set", 5, city="ulm")
    for images, split, city in ((2, "train", "jena"), (3, "train", "aachen"), (1, "val", "bonn")):
        write_set(root, images, split, city=city)
    for _ in ("made", "kept"):
        for cv, images in ((0, 10), (1, 8), (2, 9)):
            data = opened(root, cv=cv)
            found = open_centroids(data, 1024, quiet)
            assert len(data) == found.images == images
            for index in range(images):
                classes, places = mask_centroids(decode_mask(data.mask(index).read_bytes(), data.mask(index)), 1024)
                ours = found.image == index
                assert np.repeat(np.arange(19), np.diff(found.class_offsets))[ours].tolist() == classes.tolist()
                assert found.places[ours].tolist() == places.tolist()


def test_what_a_killed_process_began_is_not_taken_for_whole(tmp_path, cache):
    root = write_set(tmp_path / "set")
    mask = opened(root).mask(4)
    content = mask.read_bytes()
    mask.unlink()
    os.mkfifo(mask)  # whoever reads it waits
    program = (
        "from pathlib import Path; from training.segmentation.dataset import SegmentationSet; "
        "from training.segmentation.centroids import open_centroids; "
        f"open_centroids(SegmentationSet.open(Path({str(root)!r}), 'train', 0, print), 1024, print)"
    )
    builder = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not list(cache.glob("*/.centroids-1024.*")):
            assert builder.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        builder.send_signal(signal.SIGKILL)
    finally:
        builder.kill()
        builder.wait()
    mask.unlink()
    mask.write_bytes(content)
    found = open_centroids(opened(root), 1024, quiet)
    assert found.present() == [0, 10, 11, 12, 13, 14, 15]
    assert not list(cache.glob("*/.centroids-1024.*"))


def test_an_epoch_has_different_images_and_equally_many_crops_of_each_class():
    images, counts = 100, {0: 300, 3: 40, 7: 4, 18: 1}
    centroids = centroids_of(counts, images)
    order = centroids.draw(0.5)(np.random.default_rng(0), 0)
    assert len(order) == images
    plain, around = order[order < images], order[order >= images] - images
    assert len(plain) == len(set(plain.tolist())) == 50
    drawn = Counter((np.searchsorted(centroids.class_offsets, around, side="right") - 1).tolist())
    assert set(drawn) == {0, 3, 7, 18} and sorted(drawn.values()) == [12, 12, 13, 13]
    repeats = Counter(around.tolist())
    assert all(repeats[k] == 1 for k in repeats if k < 340)  # of 300 and of 40 none is needed twice
    assert {repeats[k] for k in range(340, 344)} <= {3, 4}  # of 4, each about as often
    assert not np.array_equal(np.sort(order), order)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_epochs_follow_from_the_seed_and_are_as_long_on_every_rank(ranks):
    centroids = centroids_of({0: 30, 5: 3}, 31)

    def epochs(seed: int) -> list[list[int]]:
        samplers = [Sampler(31, rank, ranks, 2, seed, centroids.draw(0.5)) for rank in range(ranks)]
        assert len({sampler.steps_per_pass for sampler in samplers}) == 1
        return [
            [
                item
                for step in range(samplers[0].steps_per_pass)
                for sampler in samplers
                for item in sampler.share(epoch, step).items.tolist()
            ][:31]
            for epoch in range(2)
        ]

    assert epochs(1) == epochs(1)
    assert len({tuple(epoch) for epoch in epochs(1) + epochs(2)}) == 4
    alone = Sampler(31, 0, 1, 31, 1, centroids.draw(0.5))
    assert epochs(1) == [alone.share(epoch, 0).items.tolist() for epoch in range(2)]


def test_without_a_class_anywhere_or_a_part_for_them_every_image_comes_once():
    for centroids, part in ((centroids_of({}, 20), 0.5), (centroids_of({1: 5}, 20), 0.0)):
        assert sorted(centroids.draw(part)(np.random.default_rng(0), 0).tolist()) == list(range(20))


def test_codes_lead_back_to_image_and_centroid():
    centroids = Centroids(
        10, np.array([0, 1, *[2] * 18]), np.array([7, 4], np.int32), np.array([[5, 6], [8, 9]], np.uint16)
    )
    images, points, has_point = centroids.locate(np.array([3, 11, 9, 10]))
    assert images.tolist() == [3, 4, 9, 7] and has_point.tolist() == [False, True, False, True]
    assert points[has_point].tolist() == [[8, 9], [5, 6]]
