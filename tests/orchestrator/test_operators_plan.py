"""plan, as the scheduler's run of a night calls it: Airflow's own record of the run, and a cluster with a nightly time."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.api.datamodels._generated import DagRun
from airflow.sdk.exceptions import DownstreamTasksSkipped
from trials import CHECKOUT

from scaleout.operators.sweep import PlanOperator
from scaleout.results.store import SweepStore

RUN_ID = "scheduled__night"


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlanOperator:
    for kind in ("clusters", "presets", "workloads"):
        shutil.copytree(CHECKOUT / "include" / kind, tmp_path / "include" / kind)
    local = tmp_path / "include" / "clusters" / "local.yaml"
    form = "nightly_form: {preset: quick, nodes: [1], workloads: [ssd]}"
    local.write_text(local.read_text() + f'nightly: "0 2 * * *"\n{form}\n')
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(tmp_path / "include"))
    operator = PlanOperator(task_id="plan", cluster="local")
    operator._store = SweepStore(RUN_ID)
    return operator


def run(late: timedelta, clear_number: int) -> dict[str, Any]:
    """The context of a run that was due that long ago."""
    due = datetime.now(UTC) - late
    record = DagRun(
        dag_id="scaling_benchmark", run_id=RUN_ID, logical_date=due, data_interval_start=due, data_interval_end=due, run_after=due,
        start_date=due, clear_number=clear_number, run_type="scheduled", state="running", end_date=None,
        conf=None, consumed_asset_events=[], partition_key=None,
    )  # fmt: skip
    return {"run_id": RUN_ID, "dag_run": record}


def test_a_night_that_comes_in_time_takes_the_clusters_form(plan: PlanOperator) -> None:
    assert plan.do(run(timedelta(minutes=5), 0))["trials"] == 1  # type: ignore[arg-type]


def test_a_night_that_comes_too_late_is_skipped(plan: PlanOperator) -> None:
    with pytest.raises(DownstreamTasksSkipped):
        plan.do(run(timedelta(hours=7), 0))  # type: ignore[arg-type]


def test_a_red_night_that_a_person_clears_in_the_morning_is_measured_and_not_turned_green(plan: PlanOperator) -> None:
    assert plan.do(run(timedelta(hours=7), 1))["trials"] == 1  # type: ignore[arg-type]
