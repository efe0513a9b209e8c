"""The PNG and JPEG writers: what other programs read from them, and that the bytes are any zlib's."""

from __future__ import annotations

import io
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from nvidia.dali import fn, types
from nvidia.dali.pipeline import Pipeline
from PIL import Image
from torchvision.io import ImageReadMode, decode_image

from training.data.inflation.encode import encode_jpeg, encode_png

SIDE = st.integers(1, 40)
PICTURES = st.tuples(SIDE, SIDE, st.just(3)).flatmap(lambda shape: arrays(np.uint8, shape))
LABELS = st.tuples(SIDE, SIDE).flatmap(lambda shape: arrays(np.uint8, shape))


def photograph(width: int, height: int) -> np.ndarray:
    random = np.random.Generator(np.random.Philox(key=2))
    ramp = np.linspace(40, 200, width)[None, :, None] + np.linspace(0, 50, height)[:, None, None]
    return (ramp + random.integers(-6, 7, (height, width, 3))).astype(np.uint8)


def idat(png: bytes) -> bytes:
    start = png.index(b"IDAT")
    return png[start + 4 : start + 4 + int.from_bytes(png[start - 4 : start])]


@pytest.mark.filterwarnings("ignore:The image decoding and encoding capabilities of TorchVision:DeprecationWarning")
@given(PICTURES | LABELS)
def test_pillow_and_libpng_read_the_same_pixels(pixels: np.ndarray) -> None:
    png = encode_png(pixels)
    with Image.open(io.BytesIO(png)) as image:
        image.verify()
    with Image.open(io.BytesIO(png)) as image:
        assert image.mode == ("RGB" if pixels.ndim == 3 else "L")
        assert (np.asarray(image) == pixels).all()
    data = torch.frombuffer(bytearray(png), dtype=torch.uint8)
    read = decode_image(data, ImageReadMode.UNCHANGED).permute(1, 2, 0).numpy()
    assert (read.reshape(pixels.shape) == pixels).all()


def test_dali_reads_the_same_pixels() -> None:
    pictures = [photograph(width, height) for width, height in ((1, 1), (63, 31), (640, 320))]
    pipeline = Pipeline(len(pictures), num_threads=1, device_id=None, prefetch_queue_depth=1)
    files = [np.frombuffer(encode_png(picture), np.uint8) for picture in pictures]
    with pipeline:
        encoded = fn.external_source(lambda: files, batch=True)
        pipeline.set_outputs(fn.decoders.image(encoded, device="cpu", output_type=types.RGB))
    (read,) = pipeline.run()
    for index, picture in enumerate(pictures):
        assert (np.asarray(read.at(index)) == picture).all()


@pytest.mark.parametrize(
    ("pixels", "strategy"),
    [
        (photograph(700, 300), zlib.Z_HUFFMAN_ONLY),
        (np.random.Generator(np.random.Philox(key=1)).integers(0, 256, (300, 700, 3), np.uint8), zlib.Z_HUFFMAN_ONLY),
        (photograph(700, 300)[..., 0] // 64, zlib.Z_RLE),
    ],
    ids=["picture", "noise", "labels"],
)
def test_the_bytes_are_those_of_a_zlib_without_vector_instructions(pixels: np.ndarray, strategy: int) -> None:
    data = idat(encode_png(pixels))
    packer = zlib.compressobj(1, zlib.DEFLATED, 15, 8, strategy)
    assert data == packer.compress(zlib.decompress(data)) + packer.flush()


def test_a_picture_is_no_larger_than_pillows_and_labels_next_to_nothing() -> None:
    picture = photograph(1024, 512)
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    assert len(encode_png(picture)) < 1.05 * len(file.getvalue())
    labels = np.zeros((512, 1024), np.uint8)
    labels[100:400, 200:700] = 26
    assert len(encode_png(labels)) < 5000


def test_a_jpeg_is_the_picture_at_its_quality() -> None:
    picture = photograph(640, 320)
    fine, coarse = encode_jpeg(picture), encode_jpeg(picture, 50)
    assert len(coarse) < len(fine) and encode_jpeg(picture, 92) == fine
    with Image.open(io.BytesIO(fine)) as image:
        assert image.format == "JPEG" and image.size == (640, 320)
        assert np.abs(np.asarray(image).astype(int) - picture).mean() < 4
