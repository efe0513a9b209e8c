"""The trigger form that Airflow shows; `scaleout.config.form` is what validates it."""

from __future__ import annotations

from typing import Any, get_args

from airflow.sdk import Param

from scaleout.config import files
from scaleout.config.cluster import Cluster
from scaleout.config.workload import Launcher
from training.wire.names import CACHE_MODES


def trigger_form(cluster: Cluster) -> dict[str, Param]:
    """The fields of the form. Null everywhere means: as the preset or the cluster's file has it."""
    counts = cluster.counts()
    return {
        "preset": Param("quick", type="string", enum=files.names("presets"), section="Sweep", title="Preset"),
        "workloads": _optional(
            "array", "Sweep", "Workloads (default all)", examples=files.names("workloads"), items={"type": "string"}
        ),
        "nodes": _optional(
            "array", "Sweep", f"Node counts (slots: {', '.join(map(str, counts))})", items={"type": "integer"}
        ),
        "rounds": _optional("integer", "Sweep", "Rounds", minimum=1),
        "cache_modes": _optional("array", "Sweep", "Cache modes", examples=list(CACHE_MODES), items={"type": "string"}),
        "length": _optional("object", "Trial", 'Length of a trial: {"steps": n}, {"seconds": s} or {"epochs": n}'),
        "launcher": _optional("string", "Trial", "Launcher", enum=[None, *get_args(Launcher)]),
        "batch_per_gpu": _optional("integer", "Trial", "Batch per GPU", minimum=1),
        "processes_per_node": _optional("integer", "Trial", "Processes (GPUs) per node", minimum=1),
        "num_workers": _optional("integer", "Trial", "Input workers per process", minimum=1),
        "window_steps": _optional(
            "integer", "Trial", "Steps per window (by default as many as take 5 s, and no fewer than 50)", minimum=1
        ),
        "warmup_steps": _optional("integer", "Trial", "Warm-up steps on synthetic batches", minimum=1),
        "synthetic_steps": _optional("integer", "Trial", "Timed steps on synthetic batches", minimum=1),
        "seed": _optional("integer", "Trial", "Seed", minimum=0),
        "dataset_factor": _optional(
            "string", "Data", _factor_title(cluster), also="integer", examples=["published", "1", "3"]
        ),
        "cityscapes": _optional("string", "Data", f"Cityscapes folder on the nodes (default {cluster.cityscapes})"),
        "budget_h": _optional("number", "Sweep", "Budget in hours", exclusiveMinimum=0),
    }


def _factor_title(cluster: Cluster) -> str:
    default = "as the preset has it" if cluster.dataset_factor is None else cluster.dataset_factor
    return f"Times that each frame is in the data set: a number, or `published` (default {default})"


def _optional(kind: str, section: str, title: str, also: str | None = None, **schema: Any) -> Param:
    """`also`: another type that the command line may give; the UI shows the field of the first."""
    kinds = ["null", kind] if also is None else ["null", kind, also]
    return Param(None, type=kinds, section=section, title=title, **schema)
