"""The name of a release: it changes with any byte or name that runs, and with nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.wire.release import content_hash, release_files

FILES = {"__init__.py": "", "ssd/main.py": "print(1)\n", "ssd/data.txt": "ab", "wire/names.py": "x = 1\n"}


def grow(root: Path) -> Path:
    training = root / "training"
    for name, text in FILES.items():
        (training / name).parent.mkdir(parents=True, exist_ok=True)
        (training / name).write_text(text)
    return training


@pytest.fixture
def training(tmp_path: Path) -> Path:
    return grow(tmp_path)


def test_the_name_is_16_hexadecimal_digits(training: Path) -> None:
    name = content_hash(training)
    assert len(name) == 16 and int(name, 16) >= 0


def test_the_same_files_elsewhere_have_the_same_name(training: Path, tmp_path: Path) -> None:
    assert content_hash(grow(tmp_path / ".hidden" / "__pycache__" / "elsewhere")) == content_hash(training)


def _put(name: str, content: bytes = b"x") -> Callable[[Path], object]:
    def put(training: Path) -> None:
        path = training / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    return put


@pytest.mark.parametrize(
    "change",
    [
        _put("__pycache__/main.cpython-311.pyc"),
        _put("ssd/__pycache__/note.txt"),
        _put("ssd/main.pyc"),
        _put("segmentation/logs/epoch_1.pt"),
        _put(".mypy_cache/3.11/cache.json"),
        _put("ssd/.main.py.swp"),
        lambda training: (training / "empty").mkdir(),
        lambda training: (training / "ssd/main.py").chmod(0o755),
        lambda training: (training / "ssd/main.py").touch(),
    ],
)
def test_caches_hidden_files_and_times_do_not_count(training: Path, change: Callable[[Path], object]) -> None:
    before = content_hash(training)
    change(training)
    assert content_hash(training) == before


@pytest.mark.parametrize(
    "change",
    [
        _put("ssd/main.py", b"print(2)\n"),
        _put("ssd/main.py", b"print(1)\r\n"),
        _put("ssd/main.py", b""),
        _put("ssd/new.py", b""),
        _put("new/empty.txt", b""),
        lambda training: (training / "ssd/data.txt").unlink(),
        lambda training: (training / "ssd/data.txt").rename(training / "ssd/date.txt"),
        lambda training: (training / "ssd").rename(training / "sdd"),
    ],
)
def test_any_byte_and_any_name_counts(training: Path, change: Callable[[Path], object]) -> None:
    before = content_hash(training)
    change(training)
    assert content_hash(training) != before


def test_bytes_that_move_between_files_count(training: Path) -> None:
    (training / "a").write_text("xy")
    (training / "b").write_text("z")
    before = content_hash(training)
    (training / "a").write_text("x")
    (training / "b").write_text("yz")
    assert content_hash(training) != before


def test_one_file_that_looks_like_two_is_not_taken_for_them(training: Path) -> None:
    (training / "a").write_bytes(b"x")
    (training / "b").write_bytes(b"y")
    before = content_hash(training)
    (training / "b").unlink()
    (training / "a").write_bytes(b"xtraining/b\0y")
    assert content_hash(training) != before


@settings(deadline=None, max_examples=50)
@given(content=st.binary(min_size=1, max_size=64), at=st.integers(min_value=0), bit=st.integers(0, 7))
def test_one_flipped_bit_gives_another_name(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, at: int, bit: int
) -> None:
    training = grow(tmp_path_factory.mktemp("flip"))
    (training / "blob").write_bytes(content)
    before = content_hash(training)
    flipped = bytearray(content)
    flipped[at % len(content)] ^= 1 << bit
    (training / "blob").write_bytes(flipped)
    assert content_hash(training) != before


def test_the_files_of_a_release_are_sorted_and_relative_to_its_root(training: Path) -> None:
    found = [path.as_posix() for path in release_files(training)]
    assert found == sorted(f"training/{name}" for name in FILES)


def test_our_own_training_folder_is_a_release() -> None:
    ours = Path(__file__).resolve().parents[2] / "training"
    assert {"training/wire/release.py", "training/ssd/main.py"} <= {p.as_posix() for p in release_files(ours)}
