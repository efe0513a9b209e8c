"""What runs as matrix products on GPUs equals the operators that it stands for."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from training.segmentation.products import convolutions_as_one_product, resize_as_products


def random_map(channels, layout):
    x = torch.randn(2, channels, 20, 17, generator=torch.Generator().manual_seed(0))
    return x.contiguous(memory_format=layout).requires_grad_()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_convolutions_of_one_input(layout):
    x = random_map(6, layout)
    torch.manual_seed(0)
    convolutions = [nn.Conv2d(6, 4, 1, bias=False)]
    convolutions += [nn.Conv2d(6, 5, 3, padding=rate, dilation=rate, bias=False) for rate in (1, 12, 18, 24)]
    expected = [convolution(x) for convolution in convolutions]
    found = convolutions_as_one_product(x, convolutions)
    weights = [x, *(convolution.weight for convolution in convolutions)]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradients(found, weights), gradients(expected, weights), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [5, 70])
@pytest.mark.parametrize("size", [(80, 68), (41, 33), (20, 17), (7, 9)])
def test_bilinear_resizing(layout, channels, size):
    x = random_map(channels, layout)
    expected = functional.interpolate(x, size=size, mode="bilinear", align_corners=False)
    found = resize_as_products(x, size)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(gradients([found], [x]), gradients([expected], [x]), rtol=1e-4, atol=1e-4)


def gradients(results, inputs):
    return torch.autograd.grad(sum(result.square().sum() for result in results), inputs)
