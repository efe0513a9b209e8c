"""plan: the form becomes `sweep.json`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from scaleout.config.cluster import Cluster
from scaleout.plan.resolve import resolve
from scaleout.plan.sweep import Sweep
from scaleout.plan.table import describe
from scaleout.results.store import SweepStore


def plan(run_id: str, conf: dict[str, Any], cluster: Cluster, lease_s: float, say: Callable[[str], None]) -> Sweep:
    """Resolves and writes the plan; `lease_s` is for a cluster that has none of its own. Raises ConfigError, PlanError."""
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    sweep = resolve(run_id=run_id, conf=conf, cluster=cluster, created_at=created_at, lease_s=lease_s)
    SweepStore(run_id).create(sweep)
    say(describe(sweep))
    return sweep
