"""The plan of a sweep, as `sweep.json` holds it. Every task after `plan` reads this and nothing else."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from scaleout.config.cluster import Cluster
from scaleout.config.form import Form, Length
from scaleout.config.model import Model
from scaleout.config.workload import Launcher, Workload
from scaleout.plan.dataset import folder_suffix
from training.wire.names import Axis, CacheMode, TrialKey

SCHEMA = 1
# Estimates are rough, and a trial that hangs must end some day.
LEAST_LIMIT_S, LIMIT_FACTOR = 1800.0, 10.0


class Trial(Model):
    """One trial, resolved: every value that its command will carry.

    `overrides` are the values that are not the published method's, as "value (method: value)".
    `axis` is what the sweep counts; on one host that is the ranks of its only node. `window_steps` None: the program chooses.
    """

    round: int
    workload: str
    axis: Axis = "nodes"
    nodes: int
    cache_mode: CacheMode
    node_names: list[str]
    processes_per_node: int
    ranks: int
    batch_per_gpu: int
    global_batch: int
    num_workers: int
    launcher: Launcher
    arguments: list[str]
    length: Length
    window_steps: int | None
    warmup_steps: int
    synthetic_steps: int
    seed: int
    estimated_s: float
    overrides: dict[str, str]

    @property
    def key(self) -> TrialKey:
        return TrialKey(self.round, self.workload, self.count, self.cache_mode, self.axis)

    @property
    def limit_s(self) -> float:
        """After so long it is ended."""
        return LEAST_LIMIT_S + LIMIT_FACTOR * self.estimated_s

    @property
    def count(self) -> int:
        """How many of what the sweep counts."""
        return self.nodes if self.axis == "nodes" else self.ranks


class Sweep(Model):
    """One DAG run. `ready` is set when the data is there; `stopped` says who ended the sweep early, and where.

    `lease_s` and `lock_ttl_s` are the cluster's, where it has its own. `dataset_factors` are by workload; `datasets` what
    was found there when it was made. `data` are folders that were named instead of prepared, by workload.
    """

    schema_version: int = SCHEMA
    run_id: str
    slug: str
    created_at: str
    form: Form
    cluster: Cluster
    workloads: dict[str, Workload]
    trials: list[Trial]
    cityscapes: str
    dataset_factors: dict[str, int] = {}
    estimated_h: float
    budget_h: float
    lease_s: float
    lock_ttl_s: float
    ready: bool = False
    stopped: str | None = None
    release: str | None = None
    datasets: dict[str, dict[str, Any]] = {}
    data: dict[str, str] = {}

    @property
    def axis(self) -> Axis:
        """What its trials count."""
        return self.trials[0].axis

    def trial(self, key: TrialKey) -> Trial | None:
        """The trial of a slot, or None where the sweep does not ask for it."""
        return next((trial for trial in self.trials if trial.key == key), None)

    def factor(self, workload: str) -> int:
        """How many times each frame is in the workload's data set."""
        return self.dataset_factors.get(workload, 1)

    def base_path(self, workload: str) -> str:
        """Where a node finds the frames themselves as the workload reads them; the name keeps different sources apart."""
        source = sha256(self.cityscapes.encode()).hexdigest()[:8]
        return f"{self.cluster.prepared}/{workload}-{source}"

    def prepared_path(self, workload: str) -> str:
        """Where a node finds the data set that the workload's trials read."""
        if workload in self.data:
            return self.data[workload]
        return self.base_path(workload) + folder_suffix(self.workloads[workload].inflation, self.factor(workload))
