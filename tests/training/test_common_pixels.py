"""Colours as torch makes them, held against DALI's own operator."""

import numpy as np
import pytest
import torch
from nvidia.dali import fn, pipeline_def, types

from training.common.pixels import BELOW_BLACK, MEAN, STD, Colours, finished

COLOURS = Colours(
    np.array([0, -90, 33, 90, 0.4], np.float32),
    np.array([1, 0.5, 1.5, 1.25, 0.75], np.float32),
    np.array([1, 0.875, 1.125, 1.25, 0.75], np.float32),
    np.array([1, 1.5, 0.5, 0.75, 1.25], np.float32),
)


@pytest.fixture
def images():
    return torch.randint(0, 256, (5, 3, 31, 47), generator=torch.Generator().manual_seed(3), dtype=torch.uint8)


def levels(normalised):
    mean, std = (torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    return 255 * (normalised * std + mean)


def of_dali(images):
    @pipeline_def(batch_size=len(images), num_threads=1, device_id=None)
    def pipeline():
        pixels = fn.external_source(
            source=[list(images.permute(0, 2, 3, 1).contiguous().numpy())], batch=True, layout="HWC"
        )
        hue, saturation, brightness, contrast = (
            fn.external_source(source=[list(values)], batch=True) for values in COLOURS
        )
        twisted = fn.color_twist(
            pixels, hue=hue, saturation=saturation, brightness=brightness, contrast=contrast, dtype=types.FLOAT
        )
        return fn.transpose(twisted, perm=[2, 0, 1])

    made = pipeline()
    made.build()
    (out,) = made.run()
    return torch.from_numpy(np.stack([np.array(out[i]) for i in range(len(images))])).clamp(0, 255)


def test_colours_are_those_of_dalis_color_twist(images):
    torch.testing.assert_close(levels(finished(images.float(), COLOURS)), of_dali(images), rtol=0, atol=0.5)


def test_an_image_does_not_depend_on_its_batch(images):
    whole = finished(images.float(), COLOURS)
    for index, image in enumerate(images):
        alone = finished(image[None].float(), Colours(*(values[index : index + 1] for values in COLOURS)))
        assert torch.equal(alone[0], whole[index])


def test_padding_is_black_whatever_the_colours(images):
    padded = images.float()
    padded[:, :, :5] = BELOW_BLACK
    assert levels(finished(padded, COLOURS))[:, :, :5].abs().max() < 1e-3
