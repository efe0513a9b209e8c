"""Shared by the tests of training/."""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER_COUNT" in os.environ:
    # Each worker, and what it starts, has its share of the cores. Read once, by the first import of torch.
    share = len(os.sched_getaffinity(0)) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    os.environ["OMP_NUM_THREADS"] = str(max(1, share))

from index_data import document, write
from inflation_data import make_base
from test_data_programs import generate

# Below the range that outgoing connections get theirs from.
PORTS = range(15000, 32000)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kills", type=int, default=2, help="how often an inflation is killed; from 10 on a table is printed"
    )
    parser.addoption("--kill-seed", type=int, default=1, help="of the moments at which it is killed")


@pytest.fixture(scope="session", autouse=True)
def _port() -> Iterator[None]:
    """Launchers that tests start without a port take this one, and not the one that every other test run takes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PET_MASTER_PORT", str(random.choice(PORTS)))
        yield


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Indexes of the tests' data sets stay out of the user's cache, also those that programs under test make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALEOUT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("SCALEOUT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def annotations(tmp_path: Path, cache: Path) -> Path:
    """A small annotation file, whose index is in the cache folder of the test's own."""
    return write(tmp_path / "data" / "instances.json", document())


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Generated Cityscapes-format scenes, 4 of train and 2 of val. Not to be changed: copy what a test changes."""
    out = tmp_path_factory.mktemp("scenes") / "cityscapes"
    generate(out)
    return out


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small base set of each workload. Not to be changed: copy what a test changes."""
    return {name: make_base(name, tmp_path_factory.mktemp(f"base-{name}")) for name in ("ssd", "segmentation")}


@pytest.fixture(scope="module", params=["ssd", "segmentation"])
def workload(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def base(bases: dict[str, Path], workload: str) -> Path:
    """The base set of each workload in turn."""
    return bases[workload]


@pytest.fixture
def other_file_system(tmp_path: Path) -> Iterator[Path]:
    """A folder where files of `tmp_path` cannot be hard-linked."""
    shm = Path("/dev/shm")
    if not shm.is_dir() or shm.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("no second file system: /dev/shm is missing or the one of the temporary folder")
    with tempfile.TemporaryDirectory(dir=shm) as folder:
        yield Path(folder)
