"""Both loaders of segmentation, real DALI and real worker processes: what they hand out, count and refuse."""

from __future__ import annotations

import gc
from collections import Counter

import numpy as np
import pytest
import torch
from PIL import Image
from test_segmentation_dataset import HEIGHT, WIDTH, label_ids, opened, write_set

from training.common.dali_loader import DaliLoader
from training.common.errors import UserError
from training.common.gang import Gang
from training.common.sampler import Sampler
from training.common.torch_loader import TorchLoader
from training.segmentation.augment import NUMBERS, Ranges, augment
from training.segmentation.centroids import open_centroids
from training.segmentation.labels import TRAIN_IDS
from training.segmentation.loss import segmentation_loss
from training.segmentation.pipeline import graph
from training.segmentation.planner import Planner
from training.segmentation.synthetic import synthetic_inputs
from training.segmentation.torch_input import TorchInput

LOADERS = ["dali", "torch"]
CROP = (72, 96)
RANGES, PLAIN = Ranges(CROP, 0.4, 2.0, 0.25), Ranges(CROP, 0.4, 2.0, 0.0)
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
SEED = 1


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEOUT_CACHE_DIR", str(tmp_path / "cache"))
    return opened(write_set(tmp_path / "set"))


@pytest.fixture
def loader():
    """Makes loaders, and closes them."""
    made = []

    def make(kind, data, rank=0, ranks=1, batch=2, around=0.0, first_epoch=0, antialias=True, ranges=RANGES):
        gang = Gang(rank, rank, ranks, 0, torch.device("cpu"), None)
        centroids = open_centroids(data, 1024, lambda line: None) if around else None
        draw = centroids.draw(around) if centroids else None
        sampler, planner = Sampler(len(data), rank, ranks, batch, SEED, draw), Planner(data, centroids, ranges)
        if kind == "torch":
            made.append(TorchLoader(sampler, planner, gang, TorchInput(ranges.crop, antialias), 1, first_epoch))
        else:
            drawn = graph(gang.device, ranges.crop, antialias, data.listing.has_jpeg)
            made.append(DaliLoader(sampler, planner, gang, drawn, 1, first_epoch))
        return made[-1]

    yield make
    for source in made:
        source.close()
    made.clear()
    gc.collect()  # DALI's pipelines are parts of cycles, and one collected in a forked worker waits for threads it has not


def levels(images):
    """Normalised images (B, 3, h, w) as values from 0 to 255, (B, h, w, 3)."""
    return (images.permute(0, 2, 3, 1).numpy() * STD + MEAN) * 255


def number_of(image_id):
    return int(image_id.split("_")[1])


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize(("ranks", "batch"), [(1, 2), (2, 2), (3, 1)])
def test_without_class_uniform_sampling_the_ranks_consume_every_image_once_an_epoch(data, loader, kind, ranks, batch):
    loaders = [loader(kind, data, rank, ranks, batch) for rank in range(ranks)]
    (steps,) = {source.steps_per_pass for source in loaders}
    for _ in range(2):
        batches = [source.next_batch() for source in loaders for _ in range(steps)]
        real = Counter(name for b in batches for name in b.image_ids[: b.images - b.padded_images])
        assert real == Counter(data.name(i) for i in range(len(data)))


@pytest.mark.parametrize("kind", LOADERS)
def test_crops_around_a_class_have_it(data, loader, kind):
    source = loader(kind, data, batch=5, around=1.0)
    centroids = open_centroids(data, 1024, print)
    for epoch in range(4):
        batch = source.next_batch()
        codes = Sampler(5, 0, 1, 5, SEED, centroids.draw(1.0)).share(epoch, 0).items
        assert (codes >= 5).all()
        classes = np.searchsorted(centroids.class_offsets, codes - 5, side="right") - 1
        for number, image_id, target in zip(classes, batch.image_ids, batch.inputs[1], strict=True):
            assert number < 11 or number == 11 + number_of(image_id)
            assert (target == int(number)).any()


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("around", [0.0, 0.6])
def test_crops_are_those_of_the_whole_image_scaled_first(data, loader, kind, around):
    source = loader(kind, data, batch=5, around=around, ranges=PLAIN)
    padded = 0
    for epoch in range(6):
        batch = source.next_batch()
        images, targets = levels(batch.inputs[0]), batch.inputs[1].numpy()
        assert images.shape == (5, *CROP, 3) and targets.shape == (5, *CROP) and targets.dtype == np.uint8
        for row, (image_id, crop) in enumerate(zip(batch.image_ids, plain_crops(data, epoch, around), strict=True)):
            image, mask = crop(number_of(image_id))
            padded += (image == 0).all(axis=2).sum() > 2 * CROP[1]
            assert (mask != targets[row]).mean() < 1e-3
            difference = np.abs(image - images[row])
            assert difference.max() < 4 and difference.mean() < 0.6
    assert padded


def plain_crops(data, epoch, around):
    """For each sample of a batch of five, what makes its image and target from the whole picture and mask."""
    centroids = open_centroids(data, 1024, print)
    share = Sampler(5, 0, 1, 5, SEED, centroids.draw(around) if around else None).share(epoch, 0)
    _, points, has_point = centroids.locate(share.items)
    given = augment(share.uniforms(NUMBERS), points, has_point, PLAIN)
    for row in range(5):
        size = [int(side * given.scales[row] + 0.5) for side in (HEIGHT, WIDTH)]
        ranges = []
        for axis in range(2):
            low, high = sorted((0, size[axis] - CROP[axis]))
            if has_point[row]:
                at = int((points[row, axis] + 0.5) / ((HEIGHT, WIDTH)[axis] / size[axis]))
                low, high = max(low, at - CROP[axis] + 1), min(high, at)
            first = low + int(given.places[row, axis] * (high - low + 1))
            ranges.append(np.arange(first, first + CROP[axis]))

        def crop(number, size=size, ranges=ranges, flip=given.flips[row]):
            picture = Image.open(data.image(number)).resize(size[::-1], Image.Resampling.BILINEAR)
            mask = Image.fromarray(TRAIN_IDS[label_ids(number)]).resize(size[::-1], Image.Resampling.NEAREST)
            made = []
            for pixels, filling in ((np.asarray(picture), 0), (np.asarray(mask), 255)):
                big = np.pad(pixels, [(200, 200), (200, 200)] + [(0, 0)] * (pixels.ndim - 2), constant_values=filling)
                part = big[ranges[0][:, None] + 200, ranges[1] + 200]
                made.append(part[:, ::-1] if flip else part)
            return made[0].astype(float), made[1]

        yield crop


@pytest.mark.parametrize("ending", [".png", ".jpg"])
@pytest.mark.parametrize("antialias", [True, False])
def test_both_loaders_make_the_same_of_the_same_pair(tmp_path, monkeypatch, loader, antialias, ending):
    monkeypatch.setenv("SCALEOUT_CACHE_DIR", str(tmp_path / "cache"))
    data = opened(write_set(tmp_path / "set", ending=ending))
    ours = [loader(kind, data, around=0.5, antialias=antialias) for kind in LOADERS]
    for _ in range(12):
        one, other = (source.next_batch() for source in ours)
        assert one.image_ids == other.image_ids
        difference = np.abs(levels(one.inputs[0]) - levels(other.inputs[0]))
        assert difference.max() < 8 and difference.mean() < 1  # rounding, thrice as much where colours are strengthened
        assert (one.inputs[1] != other.inputs[1]).float().mean() < 1e-3


def test_colours_are_changed_and_the_padding_is_black(data, loader):
    ranges = Ranges((300, 300), 1.0, 1.0, 0.25)
    for kind in LOADERS:
        images, targets = loader(kind, data, batch=5, ranges=ranges).next_batch().inputs
        found = levels(images)
        assert np.abs(found[(targets == 255).numpy()]).min() < 0.01
        assert ((targets != 255).flatten(1).sum(1) == (HEIGHT - 10) * WIDTH).all()
        black = (np.abs(found) < 0.01).all(axis=3).reshape(5, -1).sum(axis=1)
        assert (black >= 300 * 300 - HEIGHT * WIDTH).all()
        assert len({round(float(image.mean()), 1) for image in found}) == 5


@pytest.mark.parametrize("kind", LOADERS)
def test_batches_do_not_depend_on_the_number_of_ranks_or_on_where_one_begins(data, loader, kind):
    alone = loader(kind, data, batch=4, around=0.5)
    pair = [loader(kind, data, rank, 2, 2, around=0.5) for rank in range(2)]
    later = loader(kind, data, batch=4, around=0.5, first_epoch=1)
    for step in range(2 * alone.steps_per_pass):
        whole = alone.next_batch()
        halves = [source.next_batch() for source in pair]
        assert whole.image_ids == [name for half in halves for name in half.image_ids]
        for tensor, *parts in zip(whole.inputs, *(half.inputs for half in halves), strict=True):
            assert torch.equal(tensor, torch.cat(parts))
        if step >= alone.steps_per_pass:
            again = later.next_batch()
            assert all(torch.equal(a, b) for a, b in zip(whole.inputs, again.inputs, strict=True))


@pytest.mark.parametrize("kind", LOADERS)
def test_no_file_is_opened_before_the_first_batch_is_asked_for(data, loader, kind):
    source = loader(kind, data)
    for index in range(len(data)):
        data.image(index).unlink()
    assert source.usage().prefetched_images == 0
    with pytest.raises(UserError, match=r"cannot read .*ulm_.*_leftImg8bit\.png: No such file"):
        source.next_batch()


@pytest.mark.parametrize("kind", LOADERS)
def test_images_and_masks_are_counted_once_however_often_they_are_read(data, loader, kind):
    source = loader(kind, data, batch=1, around=0.6)
    seen = set()
    for step in range(3 * source.steps_per_pass):
        seen.add(number_of(source.next_batch().image_ids[0]))
        usage = source.usage()
        files = [path for number in seen for path in (data.image(number), data.mask(number))]
        assert usage.distinct_files == len(files)
        assert usage.distinct_bytes == sum(path.stat().st_size for path in files)
        if step < source.steps_per_pass:
            first_pass = usage.distinct_bytes
    assert usage.first_pass_distinct_bytes == first_pass


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize("part", ["image", "mask"])
def test_a_file_that_cannot_be_decoded_is_named(data, loader, kind, part):
    broken = getattr(data, part)(3)
    broken.write_bytes(broken.read_bytes()[:120])
    with pytest.raises(UserError, match=rf"{broken.name} cannot be decoded"):
        loader(kind, data, batch=5).next_batch()


def test_a_label_that_cityscapes_does_not_have_is_named_by_torch_and_ignored_by_dali(data, loader):
    Image.fromarray(np.full((HEIGHT, WIDTH), 200, np.uint8)).save(data.mask(2))
    batch = loader("dali", data, batch=5).next_batch()
    place = [number_of(name) for name in batch.image_ids].index(2)
    assert (batch.inputs[1][place] == 255).all()
    with pytest.raises(UserError, match=r"ulm_000002_000019_gtFine_labelIds\.png: label id 200"):
        loader("torch", data, batch=5).next_batch()


@pytest.mark.parametrize("side", [0.5, 2])
def test_a_mask_of_another_size_than_its_image_is_refused(data, loader, side):
    mask = Image.fromarray(label_ids(2))
    mask.resize((int(WIDTH * side), int(HEIGHT * side)), Image.Resampling.NEAREST).save(data.mask(2))
    for kind in LOADERS:
        with pytest.raises(UserError, match=r"ulm_000002_000019_gtFine_labelIds\.png has .* pixels, and its image"):
            loader(kind, data, batch=5).next_batch()


def test_images_may_differ_in_size(data, loader):
    smaller = (WIDTH // 2, HEIGHT // 4)
    Image.open(data.image(1)).resize(smaller).save(data.image(1))
    Image.fromarray(label_ids(1)).resize(smaller, Image.Resampling.NEAREST).save(data.mask(1))
    one, other = (loader(kind, data, batch=5).next_batch() for kind in LOADERS)
    assert np.abs(levels(one.inputs[0]) - levels(other.inputs[0])).max() < 8
    assert (one.inputs[1] != other.inputs[1]).float().mean() < 1e-3


def test_synthetic_batches_have_every_class_and_some_that_is_ignored():
    images, targets = synthetic_inputs(2, (320, 480), 19, torch.device("cpu"))
    assert images.shape == (2, 3, 320, 480) and images.dtype == torch.float32
    assert targets.shape == (2, 320, 480) and set(targets.unique().tolist()) == {*range(19), 255}
    assert segmentation_loss(torch.zeros(2, 19, 320, 480), targets).item() == pytest.approx(np.log(19))
