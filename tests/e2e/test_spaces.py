"""A checkout, a home and environments whose paths a careless shell would take apart: from `make cluster-up` to the table."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from world import CHECKOUT, RUN_LIMIT_S, python_with_stand_in

from scaleout import settings

PARTS = ["dags", "include", "tools", "training"]
FILES = ["Makefile", "pyproject.toml"]
FORM = {"preset": "quick", "workloads": ["ssd"], "nodes": [1, 2], "length": {"steps": 2}, "window_steps": 1}


@dataclass(frozen=True)
class Checkout:
    """A copy of this checkout whose home is in it."""

    folder: Path
    environment: dict[str, str]

    @property
    def home(self) -> Path:
        return self.folder / ".scaleout"

    def daemons(self) -> list[psutil.Process]:
        """The SSH daemons of its local cluster that run."""
        pids = [int(path.read_text()) for path in (self.home / "cluster").glob("*/sshd.pid")]
        return [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]

    def make(self, target: str) -> str:
        python = Path(sys.base_prefix) / "bin" / "python3.11"
        return self._run(["make", target, f"PYTHON={python}"])

    def typed(self, line: str) -> str:
        return self._run(["sh", "-c", f". .scaleout/env.sh && {line}"])

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=RUN_LIMIT_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-5000:]
        return done.stdout


@pytest.fixture
def checkout(tmp_path: Path, scenes: Path) -> Iterator[Checkout]:
    folder, venvs = tmp_path / "my work (2) & 'more' é" / "check  out", tmp_path / "virtual environments; $HOME"
    for part in PARTS:
        shutil.copytree(CHECKOUT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(CHECKOUT / "requirements", folder / "requirements")
    for name in FILES:
        shutil.copy(CHECKOUT / name, folder / name)
    real = settings.node_python().parents[2]
    (venvs / "node").mkdir(parents=True)
    (venvs / "orchestrator").symlink_to(real / "orchestrator")
    python = python_with_stand_in(venvs / "node" / "bin")
    python.with_name("python").symlink_to(python.name)
    shutil.copy(real / "node" / "installed-lock.sha256", venvs / "node")
    # The environments know the checkout that they were made for.
    paths = os.pathsep.join([str(folder / "include"), str(folder)])
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("SCALEOUT_", "AIRFLOW_", "MAKE"))}
    ours = Checkout(folder, kept | {"SCALEOUT_VENVS": str(venvs), "PYTHONPATH": paths})
    (ours.home / "nas").mkdir(parents=True)
    (ours.home / "nas" / "cityscapes").symlink_to(scenes)
    try:
        yield ours
    finally:
        daemons = ours.daemons()
        ours.make("cluster-down")
        left = [daemon for daemon in daemons if daemon.is_running() and daemon.status() != psutil.STATUS_ZOMBIE]
        for daemon in left:
            daemon.kill()
    assert not left, f"`make cluster-down` left {left}"


def test_a_whole_sweep(checkout: Checkout) -> None:
    assert "cluster local is up" in checkout.make("cluster-up")
    daemons = checkout.daemons()
    checkout.make("cluster-up")
    assert checkout.daemons() == daemons and len(daemons) == 3
    checkout.typed(f"airflow dags test scaling_benchmark -c '{json.dumps(FORM)}'")
    results = json.loads((checkout.home / "results" / "latest" / "results.json").read_text())
    assert results["missing"] == []
    assert [(row["nodes"], row["status"]) for row in results["trials"]] == [(1, "succeeded"), (2, "succeeded")]
    assert shlex.split(results["trials"][0]["commands"]["node1"])[1].startswith(f"{checkout.home}/cluster/node1/")
    report = checkout.typed("scaleout show").splitlines()[-1].removeprefix("report: ")
    assert Path(report).is_file() and Path(report).is_relative_to(checkout.home)
    assert checkout.typed("scaleout lock show") == "node1: free\nnode2: free\n"
