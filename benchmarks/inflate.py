"""Inflation against the same work with Pillow, on the same cores, in one run; then the whole program's time and memory.

    python benchmarks/inflate.py [--data DIR] [--frames 4] [--variants 8] [--repeats 3] [--processes CORES] [--factor 20]

DIR is a converted set (annotations/, train2017/); without it, generated street scenes of 2048x1024 px are converted in a
temporary folder. Each kind decodes a frame once, makes its variants by the same changes, and encodes them, in a process pool
of its own; the kinds take turns, and medians of rates and of the turns' ratios are printed, by the time that the processes had a
core: all of it where nothing else runs. Pillow's compress_level is the one whose files are nearest to ours in size. The program
is run with --factor, and with ten times that.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np
from pictures import for_detection, street_scenes
from PIL import Image
from programs import run

from training.data.inflation.augment import Augmenter, Change, Pixels, Tone, draw_change
from training.data.inflation.encode import encode_png
from training.data.inflation.noise import Noise
from training.data.inflation.size import settle_noise

SEED = 0
PAPER_IMAGES = {"ssd": 972_825, "segmentation": 2_025_975}
PAPER_MB = 2.88
PAPER_CORES = 4 * 128
HUFFMAN_ONLY = 2  # zlib's Z_HUFFMAN_ONLY
NEAR = 0.03  # of the size: the same


@dataclass(frozen=True)
class Frame:
    """A picture's file, and the numbers of its variants to make."""

    path: Path
    variants: range


class Ours:
    """Makes variants as the program does."""

    def __init__(self, noise: float) -> None:
        self._augmenter = Augmenter(SEED, noise)

    def variants(self, frame: Frame) -> list[bytes]:
        pixels = decoded(frame.path)
        return [encode_png(self._augmenter.image(pixels, change)) for change in changes(frame, pixels)]


class WithPillow:
    """Makes the same variants with Pillow, and noise with NumPy."""

    def __init__(self, noise: float, save: dict[str, int]) -> None:
        self._noise, self._save = Noise(SEED, noise), save

    def variants(self, frame: Frame) -> list[bytes]:
        source = Image.fromarray(decoded(frame.path))
        return [self._encoded(self.picture(source, change)) for change in changes(frame, np.asarray(source))]

    def picture(self, source: Image.Image, change: Change) -> Image.Image:
        part = change.geometry
        cut = source.crop((part.left, part.top, part.left + part.width, part.top + part.height))
        made = cut.resize(source.size, Image.Resampling.BILINEAR)
        if part.flip:
            made = made.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        made = made.point([value for tone in change.tones for value in curve(tone)])
        pixels = np.asarray(made).astype(np.int16)
        pixels += self._noise.at(change.noise_at, pixels.size).reshape(pixels.shape)
        return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))

    def _encoded(self, picture: Image.Image) -> bytes:
        file = io.BytesIO()
        picture.save(file, "PNG", **self._save)
        return file.getvalue()


def curve(tone: Tone) -> list[int]:
    """A channel's lookup table."""
    x = np.arange(256)
    levels = (tone.gain * x + (x * (255 - x) >> 8) * tone.bend + tone.offset + 32) >> 6
    return levels.clip(0, 255).tolist()


def decoded(path: Path) -> Pixels:
    with Image.open(path) as image:
        return np.array(image.convert("RGB"))


def changes(frame: Frame, pixels: Pixels) -> list[Change]:
    height, width, _ = pixels.shape
    return [draw_change(SEED, frame.path.stem, variant, width, height) for variant in frame.variants]


_worker: Ours | WithPillow


def _begin(make: Callable[[], Ours | WithPillow]) -> None:
    global _worker
    _worker = make()


def _timed(frame: Frame) -> tuple[float, list[int]]:
    """This process' seconds on a core, and the bytes of the variants."""
    started_s = time.process_time()
    sizes = [len(file) for file in _worker.variants(frame)]
    return time.process_time() - started_s, sizes


class Kind:
    """A way to make variants, in a process pool of its own."""

    def __init__(self, make: Callable[[], Ours | WithPillow], processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.pool = ProcessPoolExecutor(processes, context, _begin, (make,))

    def run(self, frames: list[Frame]) -> tuple[float, float]:
        """Images/s of a core that is worked on, and mean bytes per image."""
        found = list(self.pool.map(_timed, frames))
        sizes = [size for _, own in found for size in own]
        return len(sizes) / sum(seconds for seconds, _ in found), statistics.mean(sizes)


def main() -> None:
    options = _options()
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-") as scratch:
        base = options.data or _converted(Path(scratch), options.frames)
        _compare(sorted((base / "train2017").glob("*/*.png"))[: options.frames], options)
        for method in ("augment", "copy"):
            _program(base, Path(scratch), method, options)


def _compare(paths: list[Path], options: argparse.Namespace) -> None:
    pictures = [(path.stem, decoded(path)) for path in paths]
    noise = settle_noise(pictures, PAPER_MB * 1e6, SEED, encode_png)
    level = _level(Frame(paths[0], range(1, 2)), noise)
    _check_same(paths[0], noise)
    makers: dict[str, Callable[[], Ours | WithPillow]] = {
        f"Pillow, compress_level={level}": partial(WithPillow, noise, {"compress_level": level}),
        "Pillow, compress_level=1": partial(WithPillow, noise, {"compress_level": 1}),
        "Pillow, Huffman codes only": partial(WithPillow, noise, {"compress_level": 1, "compress_type": HUFFMAN_ONLY}),
        "ours": partial(Ours, noise),
    }
    frames = [Frame(path, range(1, 1 + options.variants)) for path in paths]
    print(
        f"{len(frames)} frames, {options.variants} variants each, noise {noise:.2f} grey levels, {options.processes} processes"
    )
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in makers}
    with ExitStack() as stack:
        kinds = {name: Kind(make, options.processes) for name, make in makers.items()}
        for kind in kinds.values():
            stack.enter_context(kind.pool)
            kind.run([Frame(path, range(1, 2)) for path in paths])
        for _ in range(options.repeats):
            for name, kind in kinds.items():
                found[name].append(kind.run(frames))
    _report(found)


def _report(found: dict[str, list[tuple[float, float]]]) -> None:
    ours = found["ours"]
    for name, turns in found.items():
        ratios = [own / rate for (own, _), (rate, _) in zip(ours, turns, strict=True)]
        print(
            f"  {name:28} {statistics.median(rate for rate, _ in turns):7.2f} images/s per core "
            f"{turns[0][1] / 1e6:6.2f} MB   ours is {statistics.median(ratios):5.2f} times as fast "
            f"({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )
    whole = statistics.median(rate for rate, _ in ours) * PAPER_CORES
    for workload, images in PAPER_IMAGES.items():
        print(
            f"  {images} images ({workload}) on {PAPER_CORES} such cores: {images / whole / 3600:.3f} h, "
            f"where storage takes {whole * ours[0][1] / 1e9:.1f} GB/s; at 1 GB/s {images * ours[0][1] / 1e9 / 3600:.2f} h"
        )


def _level(frame: Frame, noise: float) -> int:
    """Pillow's compress_level whose file is nearest to ours in size: the fastest within 3 %."""
    (own,) = Ours(noise).variants(frame)
    misses = {}
    for level in range(1, 10):
        (file,) = WithPillow(noise, {"compress_level": level}).variants(frame)
        misses[level] = abs(len(file) / len(own) - 1)
        if misses[level] <= NEAR:
            break
    return min(misses, key=lambda level: misses[level])


def _check_same(path: Path, noise: float) -> None:
    """Ours saturates once, Pillow's twice; else the pixels are the same."""
    pixels = decoded(path)
    change = draw_change(SEED, path.stem, 1, pixels.shape[1], pixels.shape[0])
    ours = Augmenter(SEED, noise).image(pixels, change)
    theirs = np.asarray(WithPillow(noise, {}).picture(Image.fromarray(pixels), change))
    same = (ours == theirs).mean()
    if same < 0.98:
        raise SystemExit(f"not the same work: {100 * same:.1f} % of the pixels agree")


def _program(base: Path, scratch: Path, method: str, options: argparse.Namespace) -> None:
    """The whole program, with a factor and with ten times that."""
    times_s = []
    for factor in (options.factor, 10 * options.factor):
        with tempfile.TemporaryDirectory(dir=scratch) as out:
            ran = run(
                "ssd/inflate.py", "--source", str(base), "--out", out, "--method", method,
                "--factor", str(factor), "--workers", str(options.processes),
            )  # fmt: skip
            summary = json.loads(ran.stdout.splitlines()[-1])
            times_s.append(ran.seconds)
        print(
            f"inflate.py --method {method}, {summary['images']:5d} images of {summary['mean_image_bytes'] / 1e6:.2f} MB: "
            f"{summary['images'] / times_s[-1] / options.processes:6.2f} images/s per core, {ran.text()}",
            flush=True,
        )
    print(f"  10 times the images take {times_s[1] / times_s[0]:.2f} times the time")


def _converted(scratch: Path, frames: int) -> Path:
    return for_detection(street_scenes(scratch / "cityscapes", frames), scratch / "base")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Inflation against Pillow.")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--variants", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--factor", type=int, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    main()
