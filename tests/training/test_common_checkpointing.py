"""Activation checkpointing changes what is kept, not what is computed."""

import copy

import pytest
import torch
from torch import nn
from torchvision.models.resnet import BasicBlock

from training.common.checkpointing import recompute_blocks
from training.segmentation.wider_resnet import IdentityBlock


def make_model():
    torch.manual_seed(0)
    blocks = [IdentityBlock(4, (4, 8, 16), 1, 2, 0.3), IdentityBlock(16, (16, 16), 1, 1, 0.0), BasicBlock(16, 16)]
    return nn.Sequential(*blocks)


def two_steps(model, call):
    torch.manual_seed(1)
    x = torch.randn(2, 4, 9, 9, requires_grad=True)
    losses = []
    for _ in range(2):
        loss = call(x).square().sum()
        loss.backward()
        losses.append(loss.item())
    gradients = [x.grad, *(parameter.grad for parameter in model.parameters())]
    return losses, gradients, list(model.buffers())


@pytest.mark.parametrize("compiled", [False, True])
def test_losses_gradients_and_statistics_are_those_of_before(compiled):
    plain = make_model()
    recomputing = copy.deepcopy(plain)
    recompute_blocks(recomputing)
    if compiled:  # torch draws dropout's numbers in another order then
        for model in (plain, recomputing):
            model[0].convs.dropout.p = 0.0
    call = torch.compile(recomputing, backend="aot_eager") if compiled else recomputing
    torch.testing.assert_close(two_steps(recomputing, call), two_steps(plain, plain))


def test_less_is_kept_for_the_backward_pass():
    def kept(model):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x: sizes.append(x.numel()) or x, lambda x: x):
            model(torch.randn(2, 4, 9, 9))
        return sum(sizes)

    model = make_model()
    before = kept(model)
    recompute_blocks(model)
    assert kept(model) < before / 4


def test_without_gradients_nothing_is_kept():
    model = make_model()
    recompute_blocks(model)
    with torch.inference_mode():
        assert model.eval()(torch.randn(2, 4, 9, 9)).shape == (2, 16, 9, 9)
