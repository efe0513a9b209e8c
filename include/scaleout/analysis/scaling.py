"""Weak scaling over the counts of a sweep: of nodes, or of what one host has.

Speedup S(N) = X(N) / X(n0) and efficiency E(N) = X(N) n0 / (N X(n0)), X in images/s of the gang, n0 the smallest count
that was asked for in the same round, workload and cache mode.

Where n0 is a single rank, which exchanges no gradients, its time per step without waiting is the compute of every count: the
batch per rank is the same. What a step of more ranks takes beyond that is communication that compute did not hide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scaleout.analysis.row import Row
from training.wire.names import Axis, TrialKey, counted

CO_LOCATED: dict[Axis, str] = {
    "nodes": "not meaningful: its nodes share one machine",
    "processes": "not meaningful: its processes share the cores of one machine",
}


def with_scaling(rows: Sequence[Row], asked: Iterable[TrialKey]) -> list[Row]:
    """The rows with speedup, efficiency and the parts of a step; null with the reason where the base is missing, in another
    cache state, has read another data set, or where what is counted shares one machine's cores."""
    bases: dict[tuple[int, str, str], TrialKey] = {}
    for key in asked:
        group = (key.round, key.workload, key.cache_mode)
        bases[group] = min(bases.get(group, key), key, key=lambda one: one.count)
    by_key = {row.key: row for row in rows}
    found = []
    for row in rows:
        base_key = bases[(row.round, row.workload, row.cache_mode)]
        found.append(_scaled(row, by_key.get(base_key), base_key))
    return found


def _scaled(row: Row, base: Row | None, base_key: TrialKey) -> Row:
    reason = _why_not(row, base, base_key)
    changes: dict[str, Any] = {"scaling_base_count": base_key.count}
    reasons = dict(row.reasons)
    if row.axis == "nodes":
        changes["scaling_base_nodes"] = base_key.count
    else:
        reasons["scaling_base_nodes"] = f"what is counted is {row.axis}"
    meaningless = CO_LOCATED[row.axis] if row.co_located else None
    if reason or base is None or row.images_per_s is None or base.images_per_s is None:
        reasons |= {"scaling_efficiency": meaningless or reason or "no rate", "speedup": reason or "no rate"}
    else:
        changes["speedup"] = row.images_per_s / base.images_per_s
        if meaningless:
            reasons["scaling_efficiency"] = meaningless
        else:
            changes["scaling_efficiency"] = changes["speedup"] * base_key.count / row.key.count
    parts = _parts_of_step(row, base, reason)
    changes |= parts if isinstance(parts, dict) else {}
    reasons |= (
        dict.fromkeys(("compute_per_step_s", "communication_per_step_s"), parts) if isinstance(parts, str) else {}
    )
    return row.model_copy(update=changes | {"reasons": reasons})


def _parts_of_step(row: Row, base: Row | None, reason: str | None) -> dict[str, float] | str:
    """Compute and communication, or why they cannot be told apart. Noise may make a communication near 0 negative."""
    busy = row.busy_per_step_s
    if busy is None:
        return row.reasons.get("step_s") or row.reasons.get("waiting_per_step_s") or "this trial has no time per step"
    if row.ranks == 1:
        return {"compute_per_step_s": busy, "communication_per_step_s": 0.0}
    if row.co_located:
        return CO_LOCATED[row.axis]
    if reason:
        return reason
    if base is None or base.ranks != 1 or base.busy_per_step_s is None:
        return "not told apart: no single rank was measured in this round"
    return {"compute_per_step_s": base.busy_per_step_s, "communication_per_step_s": busy - base.busy_per_step_s}


def _why_not(row: Row, base: Row | None, base_key: TrialKey) -> str | None:
    if row.images_per_s is None:
        return "this trial has no rate"
    if base is None or base.images_per_s is None:
        return f"the base, {counted(base_key.axis, base_key.count)}, has no rate"
    if row.cache_state != base.cache_state:
        return f"the base's cache state is {base.cache_state}, this trial's {row.cache_state}"
    if row.manifests_read != base.manifests_read:
        return f"the base read the data set {_named(base)}, this trial {_named(row)}"
    return None


def _named(row: Row) -> str:
    return " and ".join(sha256[:12] for sha256 in row.manifests_read) or "of which no rank has told"
