"""The reader of flat PNGs against Pillow, on every filter, and on what it leaves to Pillow."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from PIL import Image

from training.data.conversion.flat_png import read_flat_png

NONE, SUB, UP, AVERAGE, PAETH = range(5)


def predicted(filter_type: int, left: int, above: int, corner: int) -> int:
    """What a filter subtracts (PNG specification, 9.2)."""
    if filter_type == PAETH:
        return min((left, above, corner), key=lambda value: abs(left + above - corner - value))
    return {NONE: 0, SUB: left, UP: above, AVERAGE: (left + above) // 2}[filter_type]


def png(pixels: np.ndarray, filters: list[int], interlace: int = 0) -> bytes:
    """A grey PNG whose rows have these filters, by turns."""
    depth = pixels.itemsize
    rows = pixels.astype(pixels.dtype.newbyteorder(">")).view(np.uint8).reshape(len(pixels), -1)
    above = bytes(rows.shape[1])
    data = bytearray()
    for index, row in enumerate(rows.tolist()):
        kind = filters[index % len(filters)]
        data.append(kind)
        for at, value in enumerate(row):
            left, corner = (row[at - depth], above[at - depth]) if at >= depth else (0, 0)
            data.append((value - predicted(kind, left, above[at], corner)) & 255)
        above = bytes(row)
    height, width = pixels.shape
    header = struct.pack(">IIBBBBB", width, height, 8 * depth, 0, 0, 0, interlace)
    chunks = (
        (b"IHDR", header),
        (b"IDAT", zlib.compress(bytes(data))[:5]),
        (b"IDAT", zlib.compress(bytes(data))[5:]),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


def flat(rng: np.random.Generator, dtype: type, height: int, width: int) -> np.ndarray:
    """Rectangles on a ground: some of one id more than others, some of another high byte."""
    pixels = np.full((height, width), 7, dtype)
    for value in rng.choice([0, 7, 26, 26000, 26001, 26256, 33012, 65535], size=rng.integers(1, 6)):
        top, left = rng.integers(0, height), rng.integers(0, width)
        pixels[top : top + rng.integers(1, height + 1), left : left + rng.integers(1, width + 1)] = value % 2 ** (
            8 * pixels.itemsize
        )
    return pixels


@given(
    st.integers(0, 2**32),
    st.sampled_from([np.uint8, np.uint16]),
    st.lists(st.sampled_from([NONE, SUB, UP, PAETH]), min_size=1, max_size=5),
)
def test_flat_pictures_read_as_pillow_reads_them(
    tmp_path_factory: pytest.TempPathFactory, seed: int, dtype: type, filters: list[int]
) -> None:
    rng = np.random.default_rng(seed)
    pixels = np.kron(flat(rng, dtype, rng.integers(1, 9), rng.integers(1, 9)), np.ones((3, 40), dtype))
    path = tmp_path_factory.getbasetemp() / "flat.png"
    path.write_bytes(png(pixels, filters))
    assert np.array_equal(np.asarray(Image.open(path)), pixels)
    read = read_flat_png(path)
    assume(read is not None)
    assert np.array_equal(read, pixels) and read.itemsize == pixels.itemsize


@pytest.mark.parametrize("kind", ["labelIds", "instanceIds"])
def test_the_images_of_a_scene_are_read(scenes: Path, kind: str) -> None:
    for path in scenes.glob(f"gtFine/*/*/*_{kind}.png"):
        read = read_flat_png(path)
        assert read is not None and np.array_equal(read, np.asarray(Image.open(path)))


def saved(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, format="png")
    return file.getvalue()


GREY = png(np.full((40, 60), 26000, np.uint16), [UP])
NOISE = np.random.default_rng(0).integers(0, 65535, (40, 60), dtype=np.uint16)


@pytest.mark.parametrize(
    "file",
    {
        "colour": saved(Image.new("RGB", (60, 40))),
        "palette": saved(Image.new("P", (60, 40))),
        "bits": saved(Image.new("1", (60, 40))),
        "average": png(np.full((40, 60), 26000, np.uint16), [AVERAGE]),
        "noise": png(NOISE, [PAETH]),
        "interlaced": png(np.full((1, 1), 5, np.uint16), [NONE], interlace=1),
        "no png": b"GIF89a" + GREY[6:],
        "empty": b"",
        "signature only": GREY[:8],
        "cut off": GREY[:-20],
        "one bit": GREY[:45] + bytes([GREY[45] ^ 1]) + GREY[46:],
    }.values(),
)  # fmt: skip
def test_other_files_are_left_to_a_general_decoder(tmp_path: Path, file: bytes) -> None:
    (tmp_path / "a.png").write_bytes(file)
    assert read_flat_png(tmp_path / "a.png") is None


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_flat_png(tmp_path / "a.png")
