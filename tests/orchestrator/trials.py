"""What the tests of plans and results start from: a configuration folder, sweeps, and trials that left REAL event logs."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaleout.config.cluster import Cluster
from scaleout.plan.resolve import resolve
from scaleout.plan.sweep import Sweep, Trial
from scaleout.results.store import CACHES_FILE, LAUNCH_FILE, PREFLIGHT_FILE, SweepStore
from scaleout.steps.empty_caches import summed
from training.wire.events import (
    Body,
    ClockStart,
    ClockStop,
    Dataset,
    EpochEnd,
    EventLog,
    FirstBatch,
    RunEnd,
    RunStart,
    Synthetic,
    Window,
)

CHECKOUT = Path(__file__).resolve().parents[2]
MOUNT = {"source": "nas:/ifs", "point": "/mnt", "type": "nfs4", "options": "rw,vers=4.1,rsize=1048576"}
DATASET = Dataset("/mnt/prepared", 1000, 900_000, 100_000, 900.0, "abc", 500, "contiguous shards")


def config_folder(folder: Path) -> Path:
    """A copy of the shipped configuration, to be found through SCALEOUT_CONFIG_DIR."""
    for kind in ("clusters", "workloads", "presets"):
        shutil.copytree(CHECKOUT / "include" / kind, folder / kind)
    return folder


def cluster(nodes: int = 2, **changes: Any) -> Cluster:
    """A cluster of A100-like nodes with 8 GPUs and a NAS of four nodes."""
    document: dict[str, Any] = {
        "name": "a100",
        "nodes": [{"name": f"node{i}", "connection": f"c{i}", "address": f"10.0.0.{i}"} for i in range(1, nodes + 1)],
        "cityscapes": "/mnt/cityscapes",
        "prepared": "/mnt/prepared",
        "processes_per_node": 8,
        "array": {"kind": "onefs", "connection": "nas", "nodes": 4},
    }
    return Cluster.model_validate(document | changes)


def sweep_of(conf: dict[str, Any], on: Cluster | None = None, run_id: str = "nightly") -> Sweep:
    return resolve(run_id=run_id, conf=conf, cluster=on or cluster(), created_at="2026-12-01T03:00:00+00:00")


def created(conf: dict[str, Any], on: Cluster | None = None, run_id: str = "nightly") -> tuple[SweepStore, Sweep]:
    """A sweep, of `ssd` unless told otherwise, whose plan stands in its results folder, ready, with the nodes' preflight."""
    store = SweepStore(run_id)
    store.create(sweep_of({"workloads": ["ssd"], **conf}, on, run_id))
    sweep = store.update(ready=True, release="0123456789abcdef")
    nodes = {node.name: {"boot_id": f"boot-{node.name}", "data_mount": MOUNT} for node in sweep.cluster.nodes}
    store.write({"nodes": nodes, "array": {"kind": "onefs"}}, PREFLIGHT_FILE)
    return store, sweep


@dataclass
class Rank:
    """What one rank tells. `windows` are (pass, images, seconds); a pass is complete unless it is the last one.

    `data_wait_s` and `gpu_idle_s` are of each window, or by window.
    `pass_read_bytes` is the counter at the end of the first passes; of those not given it is the one at the end.
    """

    windows: Sequence[tuple[int, int, float]] = ((0, 100, 10.0),)
    last_pass_complete: bool = False
    synthetic: Synthetic | None = field(default_factory=lambda: Synthetic(5, 1.0, 10, 160, 8.0))
    first_batch_s: float = 0.5
    data_wait_s: float | Sequence[float] = 1.0
    gpu_idle_s: float | Sequence[float] | None = 0.25
    device: str = "cuda:0"
    gpu_index: int | None = 0
    dataset: Dataset | None = DATASET
    read_bytes: tuple[int | None, int | None] = (5_000, 105_000)
    distinct_bytes: int = 100_000
    first_pass_distinct_bytes: int | None = None
    pass_read_bytes: Sequence[int] = ()
    prefetched_images: int = 10
    status: Any = "succeeded"
    error: str | None = None
    without: Container[str] = ()

    def told(self, trial: Trial, rank: int) -> list[Body]:
        """The bodies of its log, in order."""
        bodies: list[Body] = [self._start(trial, rank)]
        if self.synthetic:
            bodies.append(self.synthetic)
        bodies += [ClockStart(self.read_bytes[0]), FirstBatch(self.first_batch_s)]
        last = self.windows[-1][0]
        read_bytes = [*self.pass_read_bytes, *[self.read_bytes[1]] * (last + 1)]
        for index in sorted({w[0] for w in self.windows}):
            of_pass = [w for w in self.windows if w[0] == index]
            bodies += [self._window(number, *w) for number, w in enumerate(self.windows) if w[0] == index]
            complete = index < last or self.last_pass_complete
            images, seconds = sum(w[1] for w in of_pass), sum(w[2] for w in of_pass)
            bodies.append(EpochEnd(index, index, complete, images, 2 * complete, seconds, read_bytes[index]))
        bodies += [
            ClockStop(
                steps=len(self.windows),
                images=sum(w[1] for w in self.windows),
                seconds=sum(w[2] for w in self.windows),
                distinct_files=100,
                distinct_bytes=self.distinct_bytes,
                first_pass_distinct_bytes=self.first_pass_distinct_bytes or self.distinct_bytes,
                prefetched_images=self.prefetched_images,
                read_bytes=self.read_bytes[1],
            ),
            RunEnd(self.status, self.error),
        ]
        return [body for body in bodies if body.kind not in self.without]

    def _window(self, number: int, index: int, images: int, seconds: float) -> Window:
        wait_s, idle_s = (w[number] if isinstance(w, Sequence) else w for w in (self.data_wait_s, self.gpu_idle_s))
        return Window(index, index, 0, 1, images, seconds, wait_s or 0.0, idle_s, 2.0, 0.1, 10**9, None)

    def _start(self, trial: Trial, rank: int) -> RunStart:
        node_rank, local_rank = divmod(rank, trial.processes_per_node)
        return RunStart(
            program=trial.workload,
            argv=[],
            run_id="nightly",
            node=trial.node_names[node_rank],
            hostname=trial.node_names[node_rank],
            boot_id=f"boot-{trial.node_names[node_rank]}",
            pid=1,
            node_rank=node_rank,
            local_rank=local_rank,
            world_size=trial.ranks,
            device=self.device,
            device_name="A100",
            gpu_index=self.gpu_index,
            backend="nccl",
            ddp="apex",
            precision="fp16",
            loader="dali",
            seed=1,
            model=f"model of {trial.workload}",
            classes=["car"],
            parameters=1,
            batch_per_gpu=trial.batch_per_gpu,
            global_batch=trial.global_batch,
            num_workers=trial.num_workers,
            learning_rate=0.1,
            length={"steps": 1.0},
            dataset=self.dataset,
            affinity=[0],
            network_interface=None,
            versions={"torch": "2"},
        )


def emptied(nodes: Sequence[str], *folders: str) -> dict[str, Any]:
    """The record of caches that were emptied as they should be, with a sample of each of the folders that are read."""
    sample = {"files": 32, "bytes": 1000, "resident_bytes": 0, "reason": None}
    resident = summed({folder: {"folder": f"/mnt/prepared/{folder}", **sample} for folder in folders or ("train2017",)})
    return {
        "synced": {node: {"sync_s": 0.1} for node in nodes},
        "flush": {"complete": True, "reason": None, "acknowledged": ["f1", "f2", "f3", "f4"]},
        "dropped": {node: {"drop_s": 0.1} for node in nodes},
        "resident": dict.fromkeys(nodes, resident),
        "problems": [],
    }


def run_trial(
    store: SweepStore, trial: Trial, ranks: Rank | Sequence[Rank | None] | None = None, failure: str | None = None
) -> str:
    """Leaves in the sweep's folder what a trial leaves: the launch, the caches, a log per rank (None: no log)."""
    folder = store.next_try(trial.key)
    commands = {node: f"cd /r && python3 main.py # {node}" for node in trial.node_names}
    store.write({"failure": failure, "commands": commands}, folder, LAUNCH_FILE)
    if trial.cache_mode == "cold":
        folders = store.sweep().workloads[trial.workload].read_folders
        store.write(emptied(trial.node_names, *folders), folder, CACHES_FILE)
    told = [ranks or Rank()] * trial.ranks if ranks is None or isinstance(ranks, Rank) else ranks
    for rank, teller in enumerate(told):
        if teller is not None:
            with EventLog(log_path(store, trial, folder, rank), rank) as log:
                for body in teller.told(trial, rank):
                    log.write(body)
    return folder


def log_path(store: SweepStore, trial: Trial, folder: str, rank: int) -> Path:
    node = trial.node_names[rank // trial.processes_per_node]
    return store.folder / folder / node / f"rank{rank}" / "events.jsonl"


def edit_json(path: Path, *keys: str, value: Any) -> None:
    """Changes one value of a JSON document on disk."""
    document = json.loads(path.read_text())
    here = document
    for key in keys[:-1]:
        here = here[key]
    here[keys[-1]] = value
    path.write_text(json.dumps(document))


def telemetry(store: SweepStore, folder: str, node: str, lines: Sequence[dict[str, Any]]) -> None:
    path = store.folder / folder / node / "telemetry.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what `.scaleout/env.sh` sets, for programs that tests start."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "SCALEOUT"))}
    return kept | {"PYTHONPATH": f"{CHECKOUT}{os.pathsep}{CHECKOUT / 'include'}"} | changes
