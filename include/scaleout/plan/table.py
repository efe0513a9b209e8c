"""The plan as text: what will run, in which order, and about how long it takes."""

from __future__ import annotations

from scaleout.config.form import length_text
from scaleout.plan.sweep import Sweep


def describe(sweep: Sweep) -> str:
    """One line per trial, then the hours against the budget."""
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
    lines.append(f"estimated {sweep.estimated_h:.2f} h of a budget of {sweep.budget_h:g} h")
    return "\n".join(lines)
