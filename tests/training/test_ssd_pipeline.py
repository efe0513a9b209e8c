from collections import Counter

import pytest
import torch
from PIL import Image
from test_ssd_dataset import BOXES, CATEGORIES, FIRST_ID, HEIGHT, WIDTH, write_dataset
from torchvision.transforms.v2 import functional

from training.common.errors import TrainingError
from training.common.gang import Gang
from training.ssd.annotations import read_annotations
from training.ssd.boxes import default_boxes, encode
from training.ssd.dataset import Layout
from training.ssd.pipeline import DaliLoader


@pytest.fixture
def layout(tmp_path):
    return Layout(write_dataset(tmp_path / "data"))


def loader(layout, rank=0, ranks=1, batch=2, **options):
    gang = Gang(rank, rank, ranks, 0, torch.device("cpu"), None)
    return DaliLoader(layout, read_annotations(layout.annotations), gang, batch, threads=1, seed=1, **options)


def passes(source, count):
    """The image ids and padded images of each pass, read from the loader's own account and file names."""
    for _ in range(count):
        padded = sum(source.next_batch().padded_images for _ in range(source.steps_per_pass))
        yield sorted(source._seen_in_pass), padded


@pytest.mark.parametrize(("images", "ranks", "batch"), [(5, 2, 2), (4, 2, 2), (3, 2, 4), (2, 2, 2), (5, 1, 3)])
def test_every_rank_makes_the_same_steps_and_together_they_see_every_image_in_every_pass(
    tmp_path, images, ranks, batch
):
    layout = Layout(write_dataset(tmp_path / "data", images))
    loaders = [loader(layout, rank, ranks, batch) for rank in range(ranks)]
    assert len({source.steps_per_pass for source in loaders}) == 1
    consumed = loaders[0].steps_per_pass * batch
    for parts in zip(*(passes(source, 3) for source in loaders), strict=True):
        ids = Counter(number for part, _ in parts for number in part)
        assert ids == Counter(range(FIRST_ID, FIRST_ID + images))
        assert [padded for _, padded in parts] == [consumed - len(part) for part, _ in parts]


def test_box_targets_and_class_numbers_are_those_of_our_encoder(layout):
    source = loader(layout, augment=False)
    place = {number: index for index, (number, _) in enumerate(CATEGORIES, start=1)}
    defaults = default_boxes()
    found = {}
    for _ in range(source.steps_per_pass):
        _, offsets, labels = source.next_batch().inputs
        for one_offsets, one_labels in zip(offsets, labels, strict=True):
            found[tuple(sorted(set(one_labels.tolist()) - {0}))] = one_offsets, one_labels
    for boxes in BOXES:
        numbers = torch.tensor([place[box[0]] for box in boxes])
        ltrb = torch.tensor([[x / WIDTH, y / HEIGHT, (x + w) / WIDTH, (y + h) / HEIGHT] for _, x, y, w, h in boxes])
        targets, labels = encode(ltrb.clamp(0, 1), numbers, defaults)
        dali_targets, dali_labels = found[tuple(sorted(set(numbers.tolist())))]
        assert torch.equal(dali_labels.long(), labels)
        matched = labels > 0
        torch.testing.assert_close(dali_targets[matched], targets[matched], rtol=1e-4, atol=1e-4)


def test_images_are_resized_and_normalised(layout):
    source = loader(layout, batch=5, augment=False)
    images, _, labels = source.next_batch().inputs
    assert images.shape == (5, 3, 300, 300) and images.dtype == torch.float32
    (bicycle,) = (i for i in range(5) if (labels[i] == 1).any())
    raw = functional.pil_to_tensor(Image.open(layout.images / "ulm/ulm_000001.png")).float()
    wanted = functional.resize(raw, [300, 300], antialias=True) / 255
    wanted = functional.normalize(wanted, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    torch.testing.assert_close(images[bicycle], wanted, rtol=0, atol=0.02)


def test_augmented_batches_are_finite_and_repeat_with_the_seed(layout):
    batches = [[source.next_batch().inputs for _ in range(6)] for source in (loader(layout), loader(layout))]
    for one, other in zip(*batches, strict=True):
        images, offsets, labels = one
        assert images.isfinite().all() and offsets[labels > 0].isfinite().all()
        assert labels.shape == (2, 8732) and offsets.shape == (2, 8732, 4)
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_no_image_is_opened_before_the_first_batch_is_asked_for(layout):
    for path in layout.images.glob("*/*.png"):
        path.unlink()
    source = loader(layout)
    with pytest.raises(TrainingError, match=r"step 0 .*readers\.coco: .*ulm_.*\.png: No such file"):
        source.next_batch()


def test_files_are_counted_once_however_often_they_are_read(layout):
    source = loader(layout)
    assert source.usage().prefetched_images == 0
    for _ in range(3 * source.steps_per_pass):
        source.next_batch()
    usage = source.usage()
    names = read_annotations(layout.annotations).file_names.values()
    assert usage.distinct_files == 5
    assert usage.distinct_bytes == sum((layout.images / name).stat().st_size for name in names)
    assert usage.first_pass_distinct_bytes == usage.distinct_bytes
    assert usage.prefetched_images == 7


def test_the_first_pass_is_counted_by_itself(layout):
    source = loader(layout)
    source.next_batch()
    once = source.usage()
    assert 0 < once.first_pass_distinct_bytes == once.distinct_bytes


def test_an_image_that_cannot_be_decoded_is_told_in_one_sentence(layout):
    for path in layout.images.glob("*/*.png"):
        path.write_bytes(b"no image")
    with pytest.raises(TrainingError, match=r"nvidia\.dali\.fn\.decoders\.image_slice: nvImageCodec failure"):
        loader(layout).next_batch()
