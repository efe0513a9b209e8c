"""Hosts in namespaces of their own. Where this user may not make any, the tests are deselected and counted, or fail in CI."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import bed as beds
import machines
import matrix
import pytest
from bed import Bed
from launch import Orchestrator, Order
from matrix import CELLS, Found

from scaleout.remote import release as releases

HOSTS = 4
MARKERS = {
    "quick": "runs in `make test`",
    "soak": "faults at random moments, and launches back to back; runs in `make test-soak`",
}
DESELECTED = pytest.StashKey[int]()
REPORTS = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption(
        "--matrix", type=Path, metavar="FILE", help="where the fault matrix is written, as Markdown and as JSON"
    )
    group.addoption("--soak-seed", type=int, default=1, help="of the faults at random moments")
    group.addoption("--soak-faults", type=int, default=200, help="how many; every tenth comes over a gang of torch")
    group.addoption("--soak-launches", type=int, default=100, help="how many launches back to back")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[CELLS], config.stash[REPORTS] = [], []
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if machines.are_allowed():
        return
    if os.environ.get("CI") or os.environ.get("SCALEOUT_REQUIRE_NAMESPACES") == "1":
        raise pytest.UsageError(
            f"{len(items)} tests of faults need namespaces, which this user may not make (it takes root and util-linux), "
            "and CI must not do without: run as root"
        )
    config.stash[DESELECTED] = len(items)
    config.hook.pytest_deselected(items=list(items))
    items.clear()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.stash.get(DESELECTED, 0) and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for report in config.stash[REPORTS]:
        terminalreporter.write(report)
    cells = config.stash[CELLS]
    if cells:
        terminalreporter.section("fault matrix")
        terminalreporter.write(matrix.table(cells))
        if config.option.matrix:
            matrix.write(cells, config.option.matrix)
    deselected = config.stash.get(DESELECTED, 0)
    if deselected:
        terminalreporter.write_line(
            f"{deselected} tests of faults were deselected: hosts in namespaces take root and util-linux", yellow=True
        )


@pytest.fixture(scope="session")
def whole_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with beds.made(tmp_path_factory.mktemp("bed"), HOSTS) as made:
        yield made


@pytest.fixture
def bed(whole_bed: Bed) -> Iterator[Bed]:
    """The hosts, well and idle. What a test leaves behind on them is ended and fails the test."""
    yield whole_bed
    left = whole_bed.left()
    if left:
        whole_bed.mend()
    assert not left, f"the test left processes on its hosts: {left}"


@pytest.fixture
def found(request: pytest.FixtureRequest) -> list[Found]:
    """The cells of the matrix that have been tried."""
    return request.config.stash[CELLS]


@pytest.fixture
def reports(request: pytest.FixtureRequest) -> list[str]:
    """What the summary tells besides."""
    return request.config.stash[REPORTS]


@pytest.fixture(scope="session")
def release(whole_bed: Bed) -> str:
    """The release that lies on all hosts."""
    name = releases.current_release()
    orchestrator = Orchestrator(
        whole_bed,
        whole_bed.hosts,
        Order(name, len(whole_bed.hosts), action="deploy"),
        whole_bed.folder / "deploy.jsonl",
    )
    end = orchestrator.wait(60)
    assert "succeeded" in end, f"{end} {orchestrator.errors()}"
    return name
