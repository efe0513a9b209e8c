"""What a scheduled sweep does, and when it is too late for one."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from scaleout.config.cluster import Cluster


def conf_of(cluster: Cluster) -> dict[str, Any]:
    """The trigger form of a scheduled sweep, as a user would have typed it."""
    return cluster.nightly_form.model_dump(exclude_none=True)


def too_late(cluster: Cluster, due_at: datetime, now: datetime) -> str | None:
    """Why a sweep that was due then must not begin now, or None when it may.

    A DAG that is unpaused gets a run at once for the last time that it missed (`catchup=False` only spares it the ones
    before), and nobody expects one in the middle of the day.
    """
    late_s = (now - due_at).total_seconds()
    if late_s <= cluster.nightly_late_s:
        return None
    due = due_at.astimezone(ZoneInfo(cluster.timezone))
    return (
        f"skipped: this nightly sweep was due at {due:%Y-%m-%d %H:%M %Z}, {late_s / 60:.0f} min ago, and begins at most "
        f"{cluster.nightly_late_s / 60:g} min late (nightly_late_s of the cluster {cluster.name}). The DAG was paused, Airflow "
        f"was down or another sweep ran at that time; the next one comes by itself, and a trigger starts one now"
    )
