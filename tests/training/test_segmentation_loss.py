import math

import torch

from training.segmentation.loss import segmentation_loss


def case(ignored=0.3):
    generator = torch.Generator().manual_seed(2)
    scores = torch.randn(2, 19, 5, 7, generator=generator) * 3
    targets = torch.randint(0, 19, (2, 5, 7), generator=generator)
    targets[torch.rand(2, 5, 7, generator=generator) < ignored] = 255
    return scores, targets


def test_equals_a_plain_implementation():
    scores, targets = case()
    entropies = []
    for n, y, x in (targets != 255).nonzero().tolist():
        logits = scores[n, :, y, x].tolist()
        entropies.append(math.log(sum(map(math.exp, logits))) - logits[targets[n, y, x]])
    assert 0 < len(entropies) < targets.numel()
    assert math.isclose(segmentation_loss(scores, targets).item(), sum(entropies) / len(entropies), rel_tol=1e-5)


def test_ignored_pixels_have_no_gradient():
    scores, targets = case()
    segmentation_loss(scores.requires_grad_(), targets).backward()
    touched = scores.grad.abs().sum(dim=1) > 0
    assert torch.equal(touched, targets != 255)


def test_a_batch_that_is_all_ignored_costs_nothing_and_has_a_gradient_of_zero():
    scores, targets = case(ignored=1.1)
    loss = segmentation_loss(scores.requires_grad_(), targets)
    loss.backward()
    assert loss.item() == 0 and not scores.grad.any()


def test_targets_may_be_bytes():
    scores, targets = case()
    assert segmentation_loss(scores, targets.to(torch.uint8)) == segmentation_loss(scores, targets)


def test_autocast_leaves_it_in_single_precision():
    scores, targets = case()
    half = scores.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = segmentation_loss(half, targets)
    assert loss.dtype == torch.float32 and loss == segmentation_loss(half.float(), targets)
