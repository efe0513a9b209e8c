"""The row of a trial: what `results.json` and `scaling.csv` hold."""

from __future__ import annotations

from typing import Any, Literal

from scaleout.config.model import Model
from training.wire.names import Axis, TrialKey


class Row(Model):
    """What was not measured is null, and `reasons` says why under the field's name.

    `model` is what the ranks built, `overrides` are what is not as published. `images_per_s` is the first pass's over the
    data, of all ranks, and so is what explains it: `utilisation`, `step_s`, `waiting_per_step_s`, `required_bytes_per_s`
    (images/s times mean bytes per image and label), `measured_read_bytes_per_s` and `hit_ratio` (by counters). Later passes
    may read from a cache: they have figures of their own, and `epochs` has those of each pass. `_per_gpu` is null on CPU,
    where ranks stand in for GPUs.

    Of the whole trial are `images`, `window_s`, `host_data_wait_s` and `gpu_idle_s` (means over ranks), `cpu_util` of the
    nodes and `gpu_util` of the GPUs that were trained on. `notes` say what befell the trial's launch.

    `axis` is what the sweep counts; `scaling_base_nodes` is null where it is not nodes. `step_s` is the slowest rank's wall
    time per step. It is made of `waiting_per_step_s` (between steps: of the GPU by its own events, of the host for data on
    CPUs; means over ranks), compute, and communication that compute did not hide.
    """

    trial: str
    workload: str
    axis: Axis = "nodes"
    nodes: int
    ranks: int
    gpus: int
    round: int
    status: Literal["succeeded", "failed"]
    cache_mode: str
    cache_state: str
    batch_per_gpu: int
    global_batch: int
    length: dict[str, float]
    model: str | None = None
    scaling: Literal["weak", "strong"] = "weak"
    images: int | None = None
    window_s: float | None = None
    images_per_s: float | None = None
    images_per_s_per_rank: float | None = None
    images_per_s_per_gpu: float | None = None
    images_per_s_later_pass: float | None = None
    synthetic_images_per_s: float | None = None
    utilisation: float | None = None
    speedup: float | None = None
    scaling_efficiency: float | None = None
    scaling_base_nodes: int | None = None
    scaling_base_count: int | None = None
    epochs: list[dict[str, Any]] = []
    start_up_s: float | None = None
    time_to_first_batch_s: float | None = None
    train_s: float | None = None
    projected_train_s: float | None = None
    projection_basis: str | None = None
    host_data_wait_s: float | None = None
    gpu_idle_s: float | None = None
    loader: str | None = None
    ddp: str | None = None
    step_s: float | None = None
    compute_per_step_s: float | None = None
    communication_per_step_s: float | None = None
    waiting_per_step_s: float | None = None
    mean_image_bytes: float | None = None
    required_bytes_per_s: float | None = None
    measured_read_bytes_per_s: float | None = None
    hit_ratio: float | None = None
    hit_ratio_later_pass: float | None = None
    gpu_util: float | None = None
    cpu_util: float | None = None
    overrides: dict[str, str] = {}
    nodes_used: list[str]
    co_located: bool
    commands: dict[str, str]
    notes: list[str] = []
    reasons: dict[str, str] = {}
    evidence: dict[str, Any] = {}
    provenance: dict[str, Any] = {}

    @property
    def manifests_read(self) -> list[str]:
        """The SHA-256 of the manifest that the ranks found with their data, one unless they found different ones."""
        read: list[str] = self.provenance.get("manifests_read", [])
        return read

    @property
    def key(self) -> TrialKey:
        return TrialKey.parse(self.trial)[0]

    @property
    def busy_per_step_s(self) -> float | None:
        """Compute and communication of a step, together."""
        if self.step_s is None or self.waiting_per_step_s is None:
            return None
        return self.step_s - self.waiting_per_step_s
