"""Fixtures of whole sweeps: homes of their own with real SSH hosts in them."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from world import CHECKOUT, World, make_world, python_with_stand_in

from scaleout import settings


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--nodes", type=int, default=2, help="of the cluster whose ranks are stand-ins, 1 to 4")


@pytest.fixture(scope="session")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four frames to train on and two to validate on, in Cityscapes' layout."""
    folder = tmp_path_factory.mktemp("scenes") / "cityscapes"
    program = CHECKOUT / "training" / "data" / "generate.py"
    counts = ["--train", "4", "--val", "2", "--seed", "7"]
    subprocess.run([str(settings.node_python()), str(program), "--out", str(folder), *counts], check=True)
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, scenes: Path) -> Iterator[World]:
    """The real thing: real training on the nodes."""
    home = tmp_path_factory.mktemp("real") / "home"
    (home / "nas").mkdir(parents=True)
    (home / "nas" / "cityscapes").symlink_to(scenes)
    yield from make_world(home, CHECKOUT / "include", settings.node_python())


@pytest.fixture(scope="module")
def finished(world: World, request: pytest.FixtureRequest) -> World:
    """After the sweep of the module's FORM."""
    status, output = world.run(request.module.FORM)
    assert status == 0, output[-5000:]
    return world


@pytest.fixture(scope="module")
def fault_world(tmp_path_factory: pytest.TempPathFactory, scenes: Path, pytestconfig: pytest.Config) -> Iterator[World]:
    """The same, but a stand-in program plays the launcher and its ranks, of `ssd` alone; leases are short."""
    root = tmp_path_factory.mktemp("faults")
    home, config_dir = root / "home", root / "include"
    for kind in ("clusters", "workloads", "presets"):
        shutil.copytree(CHECKOUT / "include" / kind, config_dir / kind)
    (config_dir / "workloads" / "segmentation.yaml").unlink()
    local = config_dir / "clusters" / "local.yaml"
    local.write_text(local.read_text() + "lease_s: 3\ngrace_s: 1\n")
    (home / "nas").mkdir(parents=True)
    (home / "nas" / "cityscapes").symlink_to(scenes)
    yield from make_world(home, config_dir, python_with_stand_in(root / "bin"), pytestconfig.getoption("--nodes"))


@pytest.fixture
def faults(fault_world: World) -> World:
    """The fault world with everything behaving well."""
    for host in ("array", "node1", "node2"):
        fault_world.behave(host)
    return fault_world


@pytest.fixture
def own_config(faults: World, tmp_path: Path) -> Path:
    """A configuration folder of the test's own."""
    folder = tmp_path / "config"
    shutil.copytree(faults.config_dir, folder)
    return folder
