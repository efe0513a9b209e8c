"""One trial's row, from everything that it left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scaleout.analysis import evidence
from scaleout.analysis.rates import Events, Rates, bodies, one, problems, rates, total
from scaleout.analysis.row import Row
from scaleout.config.workload import Workload
from scaleout.plan.sweep import Trial
from training.wire.events import RunStart
from training.wire.telemetry import TelemetrySample

NO_GPU = "the trial ran on CPUs"
UNREAD = "a rank could not read its counter of bytes read"
READ = ("measured_read_bytes_per_s", "hit_ratio", "hit_ratio_later_pass")
ADDED_BY_SCALING = {
    "speedup", "scaling_efficiency", "scaling_base_nodes", "scaling_base_count", "compute_per_step_s",
    "communication_per_step_s",
}  # fmt: skip
FIGURES = [name for name, field in Row.model_fields.items() if field.default is None and name not in ADDED_BY_SCALING]


@dataclass(frozen=True)
class Remains:
    """What a trial left: event logs by rank, telemetry by node, and the orchestrator's own records of it."""

    trial: Trial
    folder: str
    workload: Workload
    failure: str | None
    events: Events
    telemetry: Mapping[str, Sequence[TelemetrySample]]
    caches: Mapping[str, Any] | None
    preflight: Mapping[str, Mapping[str, Any]]
    commands: Mapping[str, str]
    notes: Sequence[str] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)


def row_of(remains: Remains) -> Row:
    """The row; `scaling.with_scaling` adds what compares it with others."""
    trial = remains.trial
    found = [remains.failure] if remains.failure else problems(remains.events, trial.ranks)
    base = _base(remains)
    if found:
        reason = "; ".join(found)
        reasons = dict.fromkeys(["cache_state", *FIGURES], reason)
        return Row(**base, status="failed", cache_state="unproven", reasons=reasons)
    return _measured(remains, base)


def _base(remains: Remains) -> dict[str, Any]:
    trial = remains.trial
    starts = [start for log in remains.events.values() for start in bodies(log, RunStart)]
    on_gpu = any(start.device.startswith("cuda") for start in starts)
    boots = [remains.preflight[node]["boot_id"] for node in trial.node_names if node in remains.preflight]
    return {
        "trial": remains.folder,
        "workload": trial.workload,
        "axis": trial.axis,
        "nodes": trial.nodes,
        "ranks": trial.ranks,
        "gpus": trial.ranks if on_gpu else 0,
        "round": trial.round,
        "cache_mode": trial.cache_mode,
        "batch_per_gpu": trial.batch_per_gpu,
        "global_batch": trial.global_batch,
        "length": trial.length.model_dump(exclude_none=True),
        "overrides": {**trial.overrides, **_data_override(remains.workload, starts)},
        "nodes_used": trial.node_names,
        "co_located": len(set(boots)) < len(boots) or (trial.axis == "processes" and trial.ranks > 1),
        "commands": dict(remains.commands),
        "notes": list(remains.notes),
        "provenance": dict(remains.provenance),
    }


def _machines(remains: Remains) -> list[list[str]]:
    """The nodes by machine, as their boot ids tell."""
    machines: dict[str, list[str]] = {}
    for node in remains.trial.node_names:
        machines.setdefault(remains.preflight.get(node, {}).get("boot_id") or node, []).append(node)
    return list(machines.values())


def _data_override(workload: Workload, starts: Sequence[RunStart]) -> dict[str, str]:
    images = next((start.dataset.images for start in starts if start.dataset), workload.dataset_images)
    if images == workload.dataset_images:
        return {}
    return {"images": f"{images:,} (method: {workload.dataset_images:,})"}


def _measured(remains: Remains, base: dict[str, Any]) -> Row:
    trial, clocks = remains.trial, rates(remains.events)
    start = one(remains.events[0], RunStart)
    mounts = {node: remains.preflight.get(node, {}).get("data_mount") for node in trial.node_names}
    cold = trial.cache_mode == "cold"
    verdict = evidence.judge(
        asked=trial.cache_mode,
        caches=remains.caches,
        nodes=trial.node_names,
        mounts=mounts,
        read_bytes=clocks.first_pass_read_bytes if cold else clocks.read_bytes,
        distinct_bytes=clocks.first_pass_distinct_bytes if cold else clocks.distinct_bytes,
        machines=_machines(remains),
    )
    reasons: dict[str, str] = {}
    if verdict.reasons:
        reasons["cache_state"] = "; ".join(verdict.reasons)
    values = {
        **_rate_values(clocks, trial.ranks, base["gpus"], reasons),
        **_time_values(clocks, trial, remains.workload, start, reasons),
        **_step_values(clocks, base["gpus"], reasons),
        **_storage_values(clocks, start, reasons),
        **_utilisation_values(clocks, remains, base["gpus"], reasons),
    }
    proof = {
        "caches": remains.caches,
        "read_bytes": clocks.read_bytes,
        "distinct_bytes": clocks.distinct_bytes,
        "first_pass_read_bytes": clocks.first_pass_read_bytes,
        "first_pass_distinct_bytes": clocks.first_pass_distinct_bytes,
        "prefetched_images": clocks.prefetched_images,
        "data_mounts": mounts,
    }
    return Row(
        **base,
        **values,
        model=start.model,
        loader=start.loader,
        ddp=start.ddp,
        status="succeeded",
        cache_state=verdict.state,
        reasons=reasons,
        evidence=proof,
    )


def _rate_values(clocks: Rates, ranks: int, gpus: int, reasons: dict[str, str]) -> dict[str, Any]:
    synthetic, later = clocks.synthetic_images_per_s, clocks.images_per_s_later_pass
    if later is None:
        reasons["images_per_s_later_pass"] = "the trial ended within the first pass over the data"  # noqa: S105
    if synthetic is None:
        reasons["utilisation"] = reasons["synthetic_images_per_s"] = "no synthetic steps were timed"
    if not gpus:
        reasons["images_per_s_per_gpu"] = NO_GPU
    return {
        "images": clocks.images,
        "window_s": clocks.window_s,
        "images_per_s": clocks.images_per_s,
        "images_per_s_per_rank": clocks.images_per_s / ranks,
        "images_per_s_per_gpu": clocks.images_per_s / gpus if gpus else None,
        "images_per_s_later_pass": later,
        "synthetic_images_per_s": synthetic,
        "utilisation": clocks.images_per_s / synthetic if synthetic else None,
        "epochs": [
            {
                "epoch": p.epoch,
                "pass": p.index,
                "steps": p.steps,
                "images": p.images,
                "padded_images": p.padded_images,
                "seconds": p.seconds,
                "host_data_wait_s": p.host_data_wait_s,
                "gpu_idle_s": p.gpu_idle_s,
                "read_bytes": p.read_bytes,
                "complete": p.complete,
                "images_per_s": p.images_per_s,
            }
            for p in clocks.passes
        ],
    }


def _time_values(
    clocks: Rates, trial: Trial, workload: Workload, start: RunStart, reasons: dict[str, str]
) -> dict[str, Any]:
    complete = [p for p in clocks.passes if p.complete]
    all_epochs = trial.length.epochs == workload.epochs == len(complete)
    if not all_epochs:
        reasons["train_s"] = f"the trial did not run all {workload.epochs} epochs"
    if clocks.gpu_idle_s is None:
        reasons["gpu_idle_s"] = NO_GPU
    values: dict[str, Any] = {
        "start_up_s": clocks.start_up_s,
        "time_to_first_batch_s": clocks.time_to_first_batch_s,
        "train_s": clocks.window_s if all_epochs else None,
        "host_data_wait_s": clocks.host_data_wait_s,
        "gpu_idle_s": clocks.gpu_idle_s,
    }
    if start.dataset is None:
        reasons["projected_train_s"] = reasons["projection_basis"] = "the trial read no data set"
        return values
    later = clocks.images_per_s_later_pass
    images = start.dataset.images
    values["projected_train_s"] = (
        clocks.start_up_s
        + images / clocks.images_per_s
        + (workload.epochs - 1) * images / (later or clocks.images_per_s)
    )
    values["projection_basis"] = (
        f"{workload.epochs} epochs of {images} images: start-up, the first pass at its measured rate, later passes at "
        f"{'a measured later-pass rate' if later else 'the first-pass rate, since no later pass was measured'}"
    )
    return values


def _step_values(clocks: Rates, gpus: int, reasons: dict[str, str]) -> dict[str, Any]:
    """On a GPU the host waits while the GPU computes, so only the GPU's own gaps are waiting."""
    first = clocks.first_pass
    waiting_s = first.gpu_idle_s if gpus else first.host_data_wait_s
    if waiting_s is None:
        reasons["waiting_per_step_s"] = "no CUDA event timed the gaps between the steps"
    return {
        "step_s": first.seconds / first.steps,
        "waiting_per_step_s": None if waiting_s is None else waiting_s / first.steps,
    }


def _storage_values(clocks: Rates, start: RunStart, reasons: dict[str, str]) -> dict[str, Any]:
    if start.dataset is None:
        for name in ("mean_image_bytes", "required_bytes_per_s", *READ):
            reasons[name] = "the trial read no data set"
        return {}
    mean = (start.dataset.image_bytes + start.dataset.label_bytes) / start.dataset.images
    values: dict[str, Any] = {"mean_image_bytes": mean, "required_bytes_per_s": clocks.images_per_s * mean}
    first, later = clocks.first_pass, clocks.passes[1:]
    if first.read_bytes is None:
        reasons |= dict.fromkeys(READ, UNREAD)
        return values
    ahead = clocks.prefetched_images  # of the trial's last pass
    values["measured_read_bytes_per_s"] = first.read_bytes / first.seconds
    values["hit_ratio"] = _hit_ratio(first.read_bytes, (first.images + (0 if later else ahead)) * mean)
    read_later = total(p.read_bytes for p in later)
    if not later:
        reasons["hit_ratio_later_pass"] = reasons["images_per_s_later_pass"]
    elif read_later is None:
        reasons["hit_ratio_later_pass"] = UNREAD
    else:
        values["hit_ratio_later_pass"] = _hit_ratio(read_later, (sum(p.images for p in later) + ahead) * mean)
    return values


def _hit_ratio(read: float, wanted: float) -> float:
    """Read-ahead may fetch more than was wanted."""
    return min(1.0, max(0.0, 1 - read / wanted))


def _utilisation_values(clocks: Rates, remains: Remains, gpus: int, reasons: dict[str, str]) -> dict[str, Any]:
    samples = {
        node: [s for s in of_node if clocks.clock_start_wall_s <= s.t_wall_s <= clocks.clock_stop_wall_s]
        for node, of_node in remains.telemetry.items()
    }
    cpu = [sample.cpu_util for of_node in samples.values() for sample in of_node if sample.cpu_util is not None]
    if not cpu:
        reasons["cpu_util"] = "no telemetry sample fell into the measured time"
    gpu = _gpu_utilisations(remains.events, samples) if gpus else NO_GPU
    if isinstance(gpu, str):
        reasons["gpu_util"] = gpu if cpu or not gpus else reasons["cpu_util"]
    return {
        "cpu_util": sum(cpu) / len(cpu) if cpu else None,
        "gpu_util": None if isinstance(gpu, str) else sum(gpu) / len(gpu),
    }


def _gpu_utilisations(events: Events, samples: Mapping[str, Sequence[TelemetrySample]]) -> list[float] | str:
    """Of the GPUs that the ranks train on, by node and sample, or why they are not known; others of a node do not count."""
    used: dict[str, set[int]] = {}
    for log in events.values():
        start = one(log, RunStart)
        if start.gpu_index is None:
            return f"{start.node}: a rank could not tell which of the node's GPUs is its own"
        used.setdefault(start.node, set()).add(start.gpu_index)
    told = [(node, s.gpu_util) for node, of_node in samples.items() for s in of_node if s.gpu_util]
    found = [util[index] for node, util in told for index in used.get(node, ()) if index < len(util)]
    return found or "no telemetry sample says how busy the GPUs were"
