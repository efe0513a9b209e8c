import torch
from torchvision.ops import box_convert

from training.ssd.boxes import decode, default_boxes, encode, offsets


def test_there_are_8732_default_boxes_within_the_image():
    boxes = default_boxes()
    assert boxes.shape == (8732, 4)
    assert boxes.min() >= 0 and boxes.max() <= 1


def test_known_default_boxes():
    boxes = default_boxes()
    first_cell = 0.5 / 37.5
    torch.testing.assert_close(boxes[0], torch.tensor([first_cell, first_cell, 0.07, 0.07]))
    torch.testing.assert_close(boxes[1], torch.tensor([1.5 / 37.5, first_cell, 0.07, 0.07]))  # columns run fastest
    middle = (0.07 * 0.15) ** 0.5
    torch.testing.assert_close(boxes[38 * 38], torch.tensor([first_cell, first_cell, middle, middle]))
    wide = torch.tensor([first_cell, first_cell, 0.07 * 2**0.5, 0.07 / 2**0.5])
    torch.testing.assert_close(boxes[2 * 38 * 38], wide)
    # the four boxes of the 1x1 map: 261, sqrt(261 * 315) and the two of ratio 2, of 300
    last = torch.tensor([[0.5, 0.5, s[0] / 300, s[1] / 300] for s in ((261, 261), (286.7333, 286.7333))])
    torch.testing.assert_close(boxes[-4:-2], last)
    torch.testing.assert_close(boxes[-2], torch.tensor([0.5, 0.5, 1.0, 0.87 / 2**0.5]))  # 1.23 is clamped


def test_decode_undoes_offsets():
    defaults = default_boxes()
    boxes = torch.rand(8732, 4, generator=torch.Generator().manual_seed(1)) * 0.8 + 0.1
    torch.testing.assert_close(decode(offsets(boxes, defaults), defaults), boxes)


def test_offsets_by_hand():
    default = torch.tensor([0.5, 0.5, 0.2, 0.4])
    box = torch.tensor([0.52, 0.46, 0.2 * torch.e, 0.4])
    torch.testing.assert_close(offsets(box, default), torch.tensor([1.0, -1.0, 5.0, 0.0]))


def test_each_box_keeps_its_best_default_box_and_decodes_to_itself():
    defaults = default_boxes()
    boxes = torch.tensor([[0.1, 0.1, 0.5, 0.7], [0.9, 0.9, 0.905, 0.93]])  # the second overlaps nothing by half
    targets, labels = encode(boxes, torch.tensor([3, 7]), defaults)
    assert set(labels.tolist()) == {0, 3, 7}
    assert (labels == 7).sum() == 1
    for index, label in enumerate((3, 7)):
        found = box_convert(decode(targets, defaults)[labels == label], "cxcywh", "xyxy")
        torch.testing.assert_close(found, boxes[index].expand_as(found))
    assert not targets[labels == 0].any()
