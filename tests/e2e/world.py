"""Whole sweeps: a home of their own, real SSH hosts, `airflow dags test` as a user types it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from scaleout import settings
from scaleout.config import files
from scaleout.local.cluster import LocalCluster

CHECKOUT = Path(__file__).resolve().parents[2]
RUN_LIMIT_S = 280
# What a small sweep asks for, but for its nodes.
TWO_STEPS = {
    "preset": "quick", "length": {"steps": 2}, "batch_per_gpu": 2, "window_steps": 1, "warmup_steps": 1, "synthetic_steps": 1,
}  # fmt: skip


@dataclass
class World:
    """A home with a local cluster in it. `behave` tells the stand-in array and the stand-in ranks what to do."""

    home: Path
    cluster: LocalCluster
    config_dir: Path

    @property
    def nodes(self) -> list[str]:
        return [node.name for node in self.cluster.cluster.nodes]

    def start(self, conf: dict[str, Any], **environment: str) -> subprocess.Popen[str]:
        """`airflow dags test` in a process group of its own, as a terminal would start it."""
        environment_file = shlex.quote(str(self.home / "env.sh"))
        line = f". {environment_file} && exec airflow dags test scaling_benchmark -c {shlex.quote(json.dumps(conf))}"
        return subprocess.Popen(
            # Where pytest was started with SIGINT ignored (its workers are), its children would ignore it as well.
            ["env", "--default-signal=INT", "sh", "-c", line],
            env={**self.environment(), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, conf: dict[str, Any], **environment: str) -> tuple[int, str]:
        """The exit status and everything that was printed; `environment` is added to the command's."""
        process = self.start(conf, **environment)
        try:
            output, _ = process.communicate(timeout=RUN_LIMIT_S)
        finally:
            end_group(process)
        return process.returncode, output

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`scaleout …` in this home."""
        line = f". {shlex.quote(str(self.home / 'env.sh'))} && exec scaleout {shlex.join(arguments)}"
        return subprocess.run(["sh", "-c", line], env=self.environment(), capture_output=True, text=True, timeout=60)

    def environment(self) -> dict[str, str]:
        return {**os.environ, "SCALEOUT_CONFIG_DIR": str(self.config_dir), "SCALEOUT_CLUSTER": "local"}

    def results(self) -> dict[str, Any]:
        return json.loads((self.home / "results" / "latest" / "results.json").read_text())

    def latest(self) -> Path:
        return (self.home / "results" / "latest").resolve()

    def sweeps(self) -> list[Path]:
        return sorted(p.parent for p in (self.home / "results").glob("*/sweep.json") if p.parent.name != "latest")

    def newest(self) -> Path:
        """The folder of the sweep whose plan was touched last."""
        return max(self.sweeps(), key=lambda folder: (folder / "sweep.json").stat().st_mtime)

    def run_id(self) -> str:
        """Of the newest sweep."""
        return json.loads((self.newest() / "sweep.json").read_text())["run_id"]

    def array_calls(self) -> list[dict[str, Any]]:
        path = self.cluster.folder / "array" / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def behave(self, host: str, **behaviour: Any) -> None:
        """Sets what a stand-in does: `array`, or the ranks of `node1`, `node2`."""
        folder = self.cluster.folder / host
        path = folder / "behaviour.json" if host == "array" else folder / "home" / "behaviour.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(behaviour))
        partial.replace(path)

    def launches(self, node: str) -> list[str]:
        """The trial folders in which the stand-in launcher was started on a node."""
        path = self.cluster.folder / node / "home" / "launches"
        return [Path(line).parent.name for line in path.read_text().splitlines()] if path.exists() else []

    def assert_nothing_is_left(self) -> None:
        """No process of the newest sweep on any node, and the lock is free."""
        listed = self.command("processes", self.run_id())
        assert listed.returncode == 0, listed.stdout
        locks = self.command("lock", "show").stdout.splitlines()
        assert [line.split(": ", 1)[1] for line in locks] == ["free"] * len(self.nodes)


def end_group(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def make_world(home: Path, config_dir: Path, node_python: Path, nodes: int = 2) -> Iterator[World]:
    """A world of `nodes` nodes, where the configuration has two."""
    environment = {**os.environ, "SCALEOUT_HOME": str(home), "SCALEOUT_VENVS": str(settings.node_python().parents[2])}
    base = Path(sys.base_prefix) / "bin" / "python3.11"
    subprocess.run([str(base), str(CHECKOUT / "tools" / "setup.py")], env=environment, check=True)
    found = files.load_cluster("local")
    if nodes != len(found.nodes):
        names = [f"node{k}" for k in range(1, nodes + 1)]
        local = config_dir / "clusters" / "local.yaml"
        local.write_text(_with_nodes(local.read_text(), names))
        like = found.nodes[0]
        others = [like.model_copy(update={"name": name, "connection": f"scaleout_{name}"}) for name in names]
        found = found.model_copy(update={"nodes": others})
    cluster = LocalCluster(found, home / "cluster", home / "nas", node_python)
    try:
        cluster.up(print)
        yield World(home, cluster, config_dir)
    finally:
        cluster.down(print)


def _with_nodes(cluster: str, names: list[str]) -> str:
    """A cluster file with these nodes in place of its own."""
    lines = [line for line in cluster.splitlines(keepends=True) if not line.startswith("  - {name: node")]
    at = lines.index("nodes:\n") + 1
    lines[at:at] = [f"  - {{name: {name}, connection: scaleout_{name}}}\n" for name in names]
    return "".join(lines)


def python_with_stand_in(folder: Path) -> Path:
    """A `python3` that is the training environment's, except that launching torch's ranks starts the stand-in."""
    folder.mkdir()
    real, stand_in = str(settings.node_python()), str(Path(__file__).with_name("stand_in_launcher.py"))
    script = folder / "python3"
    script.write_text(
        "#!/bin/sh\n"
        f'case "$1 $2" in "-m torch.distributed.run") exec {shlex.quote(real)} {shlex.quote(stand_in)} "$@" ;; esac\n'
        f'exec {shlex.quote(real)} "$@"\n'
    )
    script.chmod(0o755)
    return script


def wait_for(condition: Any, seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def rows_of(world: World, workload: str) -> list[dict[str, Any]]:
    """The trials of a workload in the last sweep's results."""
    return [row for row in world.results()["trials"] if row["workload"] == workload]


def assert_pairs_were_read(world: World, folder: Path, images: int) -> None:
    """Segmentation needs and reads its masks too: by the last sweep, of TWO_STEPS, from this prepared set."""
    pairs = [
        image.stat().st_size + (folder / "gtFine/train" / image.parent.name / _mask_of(image)).stat().st_size
        for image in (folder / "leftImg8bit/train").rglob("*.png")
    ]
    assert len(pairs) == images
    for row in rows_of(world, "segmentation"):
        assert row["mean_image_bytes"] == pytest.approx(sum(pairs) / images)
        # Two batches of two images on each rank: whole pairs, each counted once.
        read = sum(row["evidence"]["distinct_bytes"].values())
        assert any(read == sum(chosen) for k in range(1, 4 * row["ranks"] + 1) for chosen in combinations(pairs, k))


def _mask_of(image: Path) -> str:
    return image.name.replace("_leftImg8bit.png", "_gtFine_labelIds.png")
