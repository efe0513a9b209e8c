"""Both loaders of SSD, real DALI and real worker processes: what they hand out, count and refuse."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch
from nvidia.dali import fn, types
from PIL import Image
from ssd_data import BOXES, CATEGORIES, FIRST_ID, HEIGHT, WIDTH, write_dataset
from torchvision.ops import box_convert, box_iou
from torchvision.transforms.v2 import functional

from training.common.dali_loader import DaliLoader, Graph
from training.common.errors import UserError
from training.common.gang import Gang
from training.common.sampler import Sampler
from training.common.torch_loader import TorchLoader
from training.ssd.annotations import open_annotations
from training.ssd.boxes import default_boxes, encode
from training.ssd.dataset import Layout
from training.ssd.pipeline import graph
from training.ssd.planner import Planner
from training.ssd.torch_input import TorchInput

LOADERS = ["dali", "torch"]
CONVERT = Path(__file__).resolve().parents[2] / "training" / "data" / "convert.py"


@pytest.fixture
def layout(tmp_path):
    return Layout(write_dataset(tmp_path / "data"))


@pytest.fixture
def loader():
    """Makes loaders, and closes them."""
    made = []

    def make(
        kind, layout, rank=0, ranks=1, batch=2, augment=True, first_epoch=0, antialias=True, workers=1, drawn=None
    ):
        gang = Gang(rank, rank, ranks, 0, torch.device("cpu"), None)
        annotations = open_annotations(layout.annotations, lambda line: None)
        sampler = Sampler(len(annotations), rank, ranks, batch, seed=1)
        planner = Planner(layout.images, annotations, augment)
        if kind == "torch":
            made.append(TorchLoader(sampler, planner, gang, TorchInput(antialias), workers, first_epoch))
        else:
            drawn = drawn or graph(gang.device, antialias, jpeg=False)
            made.append(DaliLoader(sampler, planner, gang, drawn, workers, first_epoch))
        return made[-1]

    yield make
    for source in made:
        source.close()


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize(("images", "ranks", "batch"), [(5, 2, 2), (5, 3, 2), (3, 2, 4), (2, 2, 2)])
def test_together_the_ranks_consume_every_image_once_an_epoch(tmp_path, loader, kind, images, ranks, batch):
    layout = Layout(write_dataset(tmp_path / "data", images))
    loaders = [loader(kind, layout, rank, ranks, batch) for rank in range(ranks)]
    (steps,) = {source.steps_per_pass for source in loaders}
    for _ in range(3):
        batches = [source.next_batch() for source in loaders for _ in range(steps)]
        real = Counter(number for b in batches for number in b.image_ids[: b.images - b.padded_images])
        assert real == Counter(range(FIRST_ID, FIRST_ID + images))
        assert sum(b.padded_images for b in batches) == steps * ranks * batch - images


@pytest.mark.parametrize("kind", LOADERS)
def test_box_targets_and_class_numbers_are_those_of_our_encoder(layout, loader, kind):
    source = loader(kind, layout, batch=5, augment=False)
    place = {number: index for index, (number, _) in enumerate(CATEGORIES, start=1)}
    batch = source.next_batch()
    _, offsets, labels = batch.inputs
    for image_id, found, numbers in zip(batch.image_ids, offsets, labels, strict=True):
        boxes = BOXES[image_id - FIRST_ID]
        ltrb = torch.tensor([[x / WIDTH, y / HEIGHT, (x + w) / WIDTH, (y + h) / HEIGHT] for _, x, y, w, h in boxes])
        wanted = encode(ltrb.clamp(0, 1), torch.tensor([place[box[0]] for box in boxes]), default_boxes())
        assert torch.equal(numbers.long(), wanted[1])
        matched = wanted[1] > 0
        torch.testing.assert_close(found[matched], wanted[0][matched], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", LOADERS)
def test_images_are_resized_and_normalised(layout, loader, kind):
    batch = loader(kind, layout, batch=5, augment=False).next_batch()
    images = batch.inputs[0]
    assert images.shape == (5, 3, 300, 300) and images.dtype == torch.float32
    raw = functional.pil_to_tensor(Image.open(layout.images / "ulm/ulm_000001.png")).float()
    wanted = functional.resize(raw, [300, 300], antialias=True) / 255
    wanted = functional.normalize(wanted, [0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    torch.testing.assert_close(images[batch.image_ids.index(FIRST_ID + 1)], wanted, rtol=0, atol=0.02)


@pytest.mark.parametrize("antialias", [True, False])
def test_both_loaders_make_the_same_of_the_same_image(layout, loader, antialias):
    ours = [loader(kind, layout, antialias=antialias) for kind in LOADERS]
    for _ in range(8):
        one, other = (source.next_batch() for source in ours)
        assert one.image_ids == other.image_ids
        images, offsets, labels = zip(one.inputs, other.inputs, strict=True)
        difference = (images[0] - images[1]).abs()
        # half a level of rounding is 0.0087 at the smallest standard deviation; contrast triples it here and there
        assert difference.max() < 0.1 and difference.mean() < 0.01
        assert torch.equal(labels[0], labels[1].to(labels[0].dtype))
        matched = labels[0] > 0
        torch.testing.assert_close(offsets[0][matched], offsets[1][matched], rtol=1e-4, atol=1e-4)
        assert offsets[0][matched].isfinite().all()


@pytest.mark.parametrize("kind", LOADERS)
def test_batches_do_not_depend_on_the_number_of_ranks_or_on_where_one_begins(layout, loader, kind):
    alone = loader(kind, layout, batch=4)
    pair = [loader(kind, layout, rank, 2, 2) for rank in range(2)]
    later = loader(kind, layout, batch=4, first_epoch=1)
    for step in range(2 * alone.steps_per_pass):
        whole = alone.next_batch()
        halves = [source.next_batch() for source in pair]
        assert whole.image_ids == [number for half in halves for number in half.image_ids]
        for tensor, *parts in zip(whole.inputs, *(half.inputs for half in halves), strict=True):
            assert torch.equal(tensor, torch.cat(parts))
        if step >= alone.steps_per_pass:
            again = later.next_batch()
            assert all(torch.equal(a, b) for a, b in zip(whole.inputs, again.inputs, strict=True))


@pytest.mark.parametrize("at_once", [7, 64])
def test_steps_whose_batches_are_made_in_one_run_are_those_made_one_by_one(tmp_path, loader, at_once):
    """As on a GPU, where torch finishes nothing: runs of 3 and of 32 steps, of passes that have 2."""

    def define(files, given):
        images = fn.decoders.image(files[0], device="cpu")
        sums = [
            fn.reductions.sum(fn.cast(values, dtype=types.FLOAT), axes=[0]) for values in (given.boxes, given.labels)
        ]
        return images, given.anchors, given.flips, *sums

    names = ("anchors", "flips", "boxes", "labels")
    layout = Layout(write_dataset(tmp_path / "data"))
    shared = {"layout": layout, "ranks": 2, "rank": 1, "first_epoch": 1}
    alone, together = (
        loader("dali", **shared, drawn=Graph(define, 1, names, ["images", *names], images_at_once=count))
        for count in (1, at_once)
    )
    steps = alone.steps_per_pass
    for step in range(3 * at_once):
        expected, found = alone.next_batch(), together.next_batch()
        assert expected.image_ids == found.image_ids and expected.padded_images == found.padded_images
        assert all(torch.equal(a, b) for a, b in zip(expected.inputs, found.inputs, strict=True))
        one, other = alone.usage(), together.usage()
        assert (one.distinct_files, one.distinct_bytes) == (other.distinct_files, other.distinct_bytes)
        assert one.first_pass_distinct_bytes == other.first_pass_distinct_bytes or step >= steps
        # two runs are DALI's, and three batches at least are read beyond them: else storage rests while they are decoded
        assert other.prefetched_images >= 2 * (at_once // 2 * 2) + 3 * 2


@pytest.mark.parametrize("kind", LOADERS)
def test_batches_do_not_depend_on_the_number_of_workers(layout, loader, kind):
    one, two = (loader(kind, layout, batch=5, workers=workers) for workers in (1, 2))
    for _ in range(3):
        expected, found = one.next_batch(), two.next_batch()
        assert expected.image_ids == found.image_ids
        assert all(torch.equal(a, b) for a, b in zip(expected.inputs, found.inputs, strict=True))
    assert one.usage().distinct_bytes == two.usage().distinct_bytes


@pytest.mark.parametrize("kind", LOADERS)
def test_no_image_is_opened_before_the_first_batch_is_asked_for(layout, loader, kind):
    source = loader(kind, layout)
    for path in layout.images.glob("*/*.png"):
        path.unlink()
    assert source.usage().prefetched_images == 0
    with pytest.raises(UserError, match=r"cannot read .*ulm_.*\.png: No such file"):
        source.next_batch()


@pytest.mark.parametrize("kind", LOADERS)
def test_files_are_counted_once_however_often_they_are_read(layout, loader, kind):
    source = loader(kind, layout)
    source.next_batch()
    once = source.usage()
    assert once.distinct_files == 2 and 0 < once.first_pass_distinct_bytes == once.distinct_bytes
    for _ in range(3 * source.steps_per_pass):
        source.next_batch()
    usage = source.usage()
    assert usage.distinct_files == 5
    assert usage.distinct_bytes == sum((layout.images / f"ulm/ulm_{i:06d}.png").stat().st_size for i in range(5))
    assert usage.first_pass_distinct_bytes == usage.distinct_bytes
    assert 0 < usage.prefetched_images <= 12
    assert usage.file_wait_s is None if kind == "torch" else 0 < usage.file_wait_s < 60


@pytest.mark.parametrize("kind", LOADERS)
def test_an_image_that_cannot_be_decoded_is_named(layout, loader, kind):
    broken = layout.images / "ulm/ulm_000003.png"
    broken.write_bytes(broken.read_bytes()[:3000])
    source = loader(kind, layout, batch=5, workers=2)
    with pytest.raises(UserError, match=r"ulm_000003\.png cannot be decoded"):
        source.next_batch()


def test_on_crowded_scenes_the_loaders_differ_only_where_default_boxes_overlap_a_box_equally(scenes, tmp_path, loader):
    """A small box lies wholly inside many default boxes of one shape; which of those keeps it, rounding decides."""
    out = tmp_path / "prepared"
    command = [sys.executable, CONVERT, "--cityscapes", scenes, "--out", out]
    subprocess.run([*map(str, command)], check=True, capture_output=True, timeout=120)
    annotations = open_annotations(out / "annotations" / "instances_train2017.json", lambda line: None)
    places = {int(number): index for index, number in enumerate(annotations.image_ids)}
    dali, ours = (loader(kind, Layout(out), batch=4, augment=False).next_batch() for kind in LOADERS)
    ltrb = box_convert(default_boxes(), "cxcywh", "xyxy")
    different = 0
    for image_id, found, wanted in zip(dali.image_ids, dali.inputs[2].long(), ours.inputs[2].long(), strict=True):
        boxes = torch.from_numpy(annotations.boxes(places[image_id]))
        iou = box_iou(boxes, ltrb)
        best = iou >= iou.amax(dim=1, keepdim=True) - 1e-5
        for default in (found != wanted).nonzero().flatten().tolist():
            different += 1
            keeps = best[:, default]
            assert keeps.any() and (best[keeps].sum(dim=1) > 1).any()
    assert different < 0.5 * (ours.inputs[2] > 0).sum()
