"""Detections against a plain slow reference, and at their limits."""

import pytest
import torch
from torchvision.ops import box_convert, box_iou

from training.ssd.boxes import decode, default_boxes, encode
from training.ssd.detect import detections

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
DEFAULTS = default_boxes()
CLASSES = 5  # with the background


def random_outputs(seed, images=2, sharpness=3.0):
    random = torch.Generator().manual_seed(seed)
    offsets = torch.randn(images, 4, 8732, generator=random)
    return offsets, sharpness * torch.randn(images, CLASSES, 8732, generator=random)


def plain(offsets, scores):
    """One image, box by box: a list of (label, score, default box)."""
    probabilities = scores.softmax(dim=0)
    boxes = box_convert(decode(offsets.T, DEFAULTS), "cxcywh", "xyxy").double()
    found = []
    for label in range(1, len(scores)):
        ranked = sorted((-p, d) for d, p in enumerate(probabilities[label].tolist()) if p > 0.05)[:200]
        kept = []
        for negative, default in ranked:
            others = [d for _, d in kept]
            if not kept or box_iou(boxes[default][None], boxes[others]).max() <= 0.5:
                kept.append((negative, default))
        found += [(negative, label, default) for negative, default in kept]
    return [(label, -negative, default) for negative, label, default in sorted(found)[:200]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seed", [1, 2])
def test_as_a_plain_slow_reference(seed, device):
    offsets, scores = random_outputs(seed)
    found = detections(offsets.to(device), scores.to(device), DEFAULTS.to(device))
    for image, one in enumerate(found):
        expected = plain(offsets[image], scores[image])
        assert one.labels.tolist() == [label for label, _, _ in expected]
        torch.testing.assert_close(one.scores.cpu(), torch.tensor([score for _, score, _ in expected]))
        boxes = box_convert(decode(offsets[image].T, DEFAULTS), "cxcywh", "xyxy")[[d for _, _, d in expected]]
        torch.testing.assert_close(one.boxes.cpu(), boxes)
        assert len(one.scores) == 200


def test_images_do_not_touch_each_other():
    offsets, scores = random_outputs(3, images=3)
    together = detections(offsets, scores, DEFAULTS)
    for image, one in enumerate(together):
        (alone,) = detections(offsets[image][None], scores[image][None], DEFAULTS)
        assert all(torch.equal(a, b) for a, b in zip(vars(one).values(), vars(alone).values(), strict=True))


@pytest.mark.parametrize("device", DEVICES)
def test_encoded_boxes_come_back_once_each(device):
    boxes = torch.tensor([[0.1, 0.2, 0.4, 0.9], [0.1, 0.2, 0.5, 0.8], [0.8, 0.8, 0.82, 0.84]])
    labels = torch.tensor([1, 2, 4])  # the first two overlap but are of two classes
    (found,) = detections(*(t.to(device) for t in outputs_of(boxes, labels)), DEFAULTS.to(device))
    assert found.labels.tolist() == [1, 2, 4]
    torch.testing.assert_close(found.boxes.cpu(), boxes)


def outputs_of(boxes, labels):
    targets, of_default = encode(boxes, labels, DEFAULTS)
    return targets.T[None], 30 * torch.nn.functional.one_hot(of_default, CLASSES).T[None].float()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_made_float_first(dtype):
    offsets, scores = (t.to(dtype) for t in random_outputs(4))
    for half, full in zip(
        detections(offsets, scores, DEFAULTS), detections(offsets.float(), scores.float(), DEFAULTS), strict=True
    ):
        assert half.boxes.dtype == half.scores.dtype == torch.float32
        assert torch.equal(half.boxes, full.boxes) and torch.equal(half.labels, full.labels)


@pytest.mark.parametrize("device", DEVICES)
def test_equal_scores_keep_the_order_of_classes_and_default_boxes(device):
    offsets, scores = torch.zeros(1, 4, 8732, device=device), torch.zeros(1, CLASSES, 8732, device=device)
    (found,) = detections(offsets, scores, DEFAULTS.to(device))
    corners = box_convert(DEFAULTS[:200], "cxcywh", "xyxy")  # the first 200 of each class are looked at
    kept = []
    for index in range(200):
        if not kept or box_iou(corners[index][None].double(), corners[kept].double()).max() <= 0.5:
            kept.append(index)
    expected = [(label, index) for label in range(1, CLASSES) for index in kept][:200]
    assert found.labels.tolist() == [label for label, _ in expected]
    torch.testing.assert_close(found.boxes.cpu(), corners[[index for _, index in expected]])


def test_background_low_scores_and_boxes_that_are_not_finite_are_not_seen():
    offsets, scores = torch.zeros(3, 4, 8732), torch.zeros(3, CLASSES, 8732)
    scores[:, 0] = 20.0
    scores[1, 2, 7] = 20.0  # as likely as the background
    scores[2, 2, 7] = 20.0 - 3.0  # 0.047
    offsets[1, 2, 8000], scores[1, 3, 8000] = 1e9, 40.0
    scores[2, 1, 9] = float("nan")
    none, one, low = detections(offsets, scores, DEFAULTS)
    assert (one.labels.tolist(), one.scores.tolist()) == ([2], [0.5])
    for empty in (none, low):
        assert (empty.boxes.shape, empty.labels.shape, empty.scores.shape) == ((0, 4), (0,), (0,))


def test_a_box_may_leave_the_image_and_hides_only_its_own_class():
    offsets, scores = torch.zeros(1, 4, 8732), torch.zeros(1, CLASSES, 8732)
    scores[:, 0] = 20.0
    offsets[0, 2:, 8731] = 50.0  # e^10 times the image's size
    offsets[0, 0, 0] = -10.0  # one width to the left
    scores[0, [1, 2], 8731] = 30.0
    scores[0, 1, 0] = 40.0
    (found,) = detections(offsets, scores, DEFAULTS)
    assert found.labels.tolist() == [1, 1, 2]
    assert found.boxes[1:].tolist() == [[-1, -1, 2, 2]] * 2
    assert found.boxes[0, 0] < 0
