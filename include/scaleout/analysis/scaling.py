"""Weak scaling over the node counts of a sweep.

Speedup S(N) = X(N) / X(n0) and efficiency E(N) = X(N) n0 / (N X(n0)), X in images/s of the gang, n0 the smallest node
count that was asked for in the same round, workload and cache mode.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scaleout.analysis.row import Row
from training.wire.names import TrialKey

CO_LOCATED = "not meaningful: its nodes share one machine"


def with_scaling(rows: Sequence[Row], asked: Iterable[TrialKey]) -> list[Row]:
    """The rows with speedup and efficiency; null with the reason where the base is missing, in another
    cache state, has read another data set, or where the nodes are not machines of their own."""
    bases: dict[tuple[int, str, str], int] = {}
    for key in asked:
        group = (key.round, key.workload, key.cache_mode)
        bases[group] = min(bases.get(group, key.nodes), key.nodes)
    by_key = {row.key: row for row in rows}
    return [_scaled(row, by_key, bases[(row.round, row.workload, row.cache_mode)]) for row in rows]


def _scaled(row: Row, by_key: dict[TrialKey, Row], base_nodes: int) -> Row:
    key = row.key
    base = by_key.get(TrialKey(key.round, key.workload, base_nodes, key.cache_mode))
    reason = _why_not(row, base, base_nodes)
    if reason or base is None or row.images_per_s is None or base.images_per_s is None:
        meaningless = CO_LOCATED if row.co_located else reason
        reasons = {**row.reasons, "scaling_efficiency": meaningless or "no rate", "speedup": reason or "no rate"}
        return row.model_copy(update={"scaling_base_nodes": base_nodes, "reasons": reasons})
    speedup = row.images_per_s / base.images_per_s
    scaled = {"scaling_base_nodes": base_nodes, "speedup": speedup}
    if row.co_located:
        return row.model_copy(update={**scaled, "reasons": {**row.reasons, "scaling_efficiency": CO_LOCATED}})
    return row.model_copy(update={**scaled, "scaling_efficiency": speedup * base_nodes / row.nodes})


def _why_not(row: Row, base: Row | None, base_nodes: int) -> str | None:
    if row.images_per_s is None:
        return "this trial has no rate"
    if base is None or base.images_per_s is None:
        return f"the base, {base_nodes} node{'s' * (base_nodes > 1)}, has no rate"
    if row.cache_state != base.cache_state:
        return f"the base's cache state is {base.cache_state}, this trial's {row.cache_state}"
    if row.manifests_read != base.manifests_read:
        return f"the base read the data set {_named(base)}, this trial {_named(row)}"
    return None


def _named(row: Row) -> str:
    return " and ".join(sha256[:12] for sha256 in row.manifests_read) or "of which no rank has told"
