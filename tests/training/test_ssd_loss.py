import math

import torch

from training.ssd.loss import ssd_loss


def plain_loss(offsets, scores, target_offsets, target_labels):
    """The same loss with loops and Python floats."""
    total = 0.0
    for n in range(len(scores)):
        labels = target_labels[n].tolist()
        entropies = []
        for d, label in enumerate(labels):
            logits = scores[n, :, d].tolist()
            entropies.append(math.log(sum(map(math.exp, logits))) - logits[label])
        positives = [d for d, label in enumerate(labels) if label > 0]
        if not positives:
            continue
        distance = 0.0
        for d in positives:
            for c in range(4):
                x = abs(offsets[n, c, d].item() - target_offsets[n, d, c].item())
                distance += 0.5 * x * x if x < 1 else x - 0.5
        negatives = sorted((entropies[d] for d, label in enumerate(labels) if label == 0), reverse=True)
        hard = negatives[: 3 * len(positives)]
        total += (distance + sum(entropies[d] for d in positives) + sum(hard)) / len(positives)
    return total / len(scores)


def random_case(batch=3, classes=5, defaults=40, positives=(4, 0, 25)):
    generator = torch.Generator().manual_seed(3)
    offsets = torch.randn(batch, 4, defaults, generator=generator) * 2
    scores = torch.randn(batch, classes, defaults, generator=generator) * 3
    targets = torch.randn(batch, defaults, 4, generator=generator)
    labels = torch.zeros(batch, defaults, dtype=torch.int32)
    for n, count in enumerate(positives):
        chosen = torch.randperm(defaults, generator=generator)[:count]
        labels[n, chosen] = torch.randint(1, classes, (count,), generator=generator, dtype=torch.int32)
    return offsets, scores, targets, labels


def test_equals_a_plain_implementation():
    case = random_case()
    assert math.isclose(ssd_loss(*case).item(), plain_loss(*case), rel_tol=1e-5)


def test_a_batch_without_positives_costs_nothing_and_has_no_gradient_that_is_not_finite():
    offsets, scores, targets, labels = random_case(positives=(0, 0, 0))
    scores.requires_grad_()
    loss = ssd_loss(offsets, scores, targets, labels)
    loss.backward()
    assert loss.item() == 0 and not scores.grad.any()


def test_regression_targets_of_background_do_not_matter():
    offsets, scores, targets, labels = random_case()
    spoiled = targets.masked_fill((labels == 0)[..., None], torch.inf)
    assert ssd_loss(offsets, scores, spoiled, labels) == ssd_loss(offsets, scores, targets, labels)


def test_half_precision_outputs_are_summed_in_single():
    offsets, scores, targets, labels = random_case()
    assert ssd_loss(offsets.half(), scores.half(), targets, labels).dtype == torch.float32
