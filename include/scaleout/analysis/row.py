"""The row of a trial: what `results.json` and `scaling.csv` hold."""

from __future__ import annotations

from typing import Any, Literal

from scaleout.config.model import Model
from training.wire.names import TrialKey


class Row(Model):
    """What was not measured is null, and `reasons` says why under the field's name.

    `model` is what the ranks built, `overrides` are what is not as published. `images_per_s` is the first pass's, of all
    ranks; `_per_gpu` is null on CPU, where ranks stand in for GPUs. `host_data_wait_s` and `gpu_idle_s` are means over
    ranks, over `window_s`. `required_bytes_per_s` is images/s times mean bytes per image and label;
    `measured_read_bytes_per_s` comes from counters. `notes` say what befell the trial's launch.
    """

    trial: str
    workload: str
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
    epochs: list[dict[str, Any]] = []
    start_up_s: float | None = None
    time_to_first_batch_s: float | None = None
    train_s: float | None = None
    projected_train_s: float | None = None
    projection_basis: str | None = None
    host_data_wait_s: float | None = None
    gpu_idle_s: float | None = None
    mean_image_bytes: float | None = None
    required_bytes_per_s: float | None = None
    measured_read_bytes_per_s: float | None = None
    hit_ratio: float | None = None
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
