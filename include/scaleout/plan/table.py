"""The plan as text: what will run, in which order, and about how long it takes."""

from __future__ import annotations

from scaleout.config.form import length_text
from scaleout.plan.dataset import METHOD_CORES_PER_NODE, SECONDS_PER_HOUR, Estimate, estimate
from scaleout.plan.sweep import Sweep


def describe(sweep: Sweep) -> str:
    """One line per trial, the data sets and what making them takes, then the hours against the budget."""
    cluster = sweep.cluster
    lines = [
        f"sweep {sweep.run_id} on cluster {cluster.name}: {len(sweep.trials)} trials, preset {sweep.form.preset}, "
        f"data from {sweep.cityscapes}"
    ]
    for trial in sweep.trials:
        lines.append(
            f"  round {trial.round}  {trial.workload:<14}{trial.nodes:>3} node{'s' if trial.nodes > 1 else ' '} "
            f"{trial.ranks:>4} rank{'s' if trial.ranks > 1 else ' '}  {trial.cache_mode:<5} "
            f"batch {trial.batch_per_gpu} per GPU, {trial.global_batch} global (weak scaling)  "
            f"{length_text(trial.length):<12} about {trial.estimated_s / 60:.1f} min"
        )
    lines.append(
        "data sets, made where they are not there yet; for the whole of Cityscapes about, and outside the budget:"
    )
    for workload in sweep.workloads:
        lines.append(f"  {workload:<14}{_data(sweep, workload)}, in {sweep.prepared_path(workload)}")
    lines.append(f"estimated {sweep.estimated_h:.2f} h of a budget of {sweep.budget_h:g} h")
    return "\n".join(lines)


def _data(sweep: Sweep, workload: str) -> str:
    """How many frames a source really has is not known before it is read."""
    factor, inflation = sweep.factor(workload), sweep.workloads[workload].inflation
    if inflation is None or factor == 1:
        return "the frames themselves"
    found = estimate(sweep.workloads[workload], inflation, factor)
    return (
        f"{found.images:,} images, each frame {factor} times ({inflation.method}, {inflation.format}, seed {inflation.seed}): "
        f"{'' if inflation.has_mean_size else 'up to '}{_size(found.bytes)} free space{_hours(sweep, found)}"
    )


def _hours(sweep: Sweep, found: Estimate) -> str:
    nodes = max(trial.nodes for trial in sweep.trials)
    if not found.core_hours:
        return ""
    hours = found.hours(nodes)
    return (
        f" and {found.core_hours:,.1f} core hours, {hours:.2f} h on {nodes} node{'s' * (nodes > 1)} of {METHOD_CORES_PER_NODE} "
        f"cores where the storage takes {found.bytes / 1e9 / (hours * SECONDS_PER_HOUR):.1f} GB/s"
    )


def _size(count: int) -> str:
    return f"{count / 1e12:.2f} TB" if count >= 10**11 else f"{count / 1e9:.1f} GB"
