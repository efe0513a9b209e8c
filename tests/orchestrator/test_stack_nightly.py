"""The nightly sweep: how a cluster's file asks for it, and when one comes too late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.sdk import CronTriggerTimetable
from trials import cluster, config_folder

from scaleout.config import files
from scaleout.errors import ConfigError
from scaleout.operators.schedule import nightly_schedule
from scaleout.steps.nightly import conf_of, too_late

DUE = datetime(2026, 1, 15, 1, 0, tzinfo=UTC)


def loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str) -> object:
    folder = config_folder(tmp_path / "include")
    path = folder / "clusters" / "local.yaml"
    path.write_text(path.read_text() + lines)
    monkeypatch.setenv("SCALEOUT_CONFIG_DIR", str(folder))
    return nightly_schedule(files.load_cluster("local"))


def test_without_a_nightly_time_there_is_no_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert loaded(tmp_path, monkeypatch, "") is None


def test_the_schedule_is_the_files_in_the_clusters_time_zone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = loaded(
        tmp_path, monkeypatch, 'timezone: Europe/Berlin\nnightly: "0 2 * * *"\nnightly_form: {preset: quick}\n'
    )
    assert schedule == CronTriggerTimetable("0 2 * * *", timezone="Europe/Berlin")


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (
            'nightly: "0 25 * * *"\n',
            "local.yaml:{line}: nightly: '0 25 * * *' is no cron expression, such as '0 2 * * *'",
        ),
        ('nightly: "0 0 31 2 *"\n', "local.yaml:{line}: nightly: '0 0 31 2 *' is no cron expression"),
        ('nightly: "@daily"\n', "local.yaml:{line}: nightly: '@daily' is no cron expression"),
        ("timezone: Mars/Olympus\n", "local.yaml:{line}: timezone: there is no time zone 'Mars/Olympus'"),
        ("nightly_form: {nods: [1]}\n", "local.yaml:{line}: unknown key 'nightly_form.nods'; did you mean 'nodes'?"),
        (
            'nightly_form: {preset: nigtly}\nnightly: "0 2 * * *"\n',
            "nightly_form of the cluster local: no preset named 'nigtly'",
        ),
        (
            'nightly_form: {nodes: [3]}\nnightly: "0 2 * * *"\n',
            "nightly_form of the cluster local: trigger form: 3 nodes are asked for and the cluster local has 2",
        ),
    ],
)
def test_a_wrong_nightly_is_refused_when_the_file_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: str, sentence: str
) -> None:
    first = len((config_folder(tmp_path / "count") / "clusters" / "local.yaml").read_text().splitlines()) + 1
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, monkeypatch, lines)
    assert sentence.format(line=first) in str(caught.value)


def test_the_form_of_the_night_is_the_nightly_preset_unless_the_file_says_more() -> None:
    assert conf_of(cluster(2)) == {"preset": "nightly"}
    assert conf_of(cluster(2, nightly_form={"nodes": [2]})) == {"preset": "nightly", "nodes": [2]}


def test_a_sweep_begins_up_to_half_an_hour_late() -> None:
    assert too_late(cluster(2), DUE, DUE + timedelta(minutes=30)) is None
    sentence = too_late(cluster(2, timezone="Europe/Berlin"), DUE, DUE + timedelta(hours=9))
    assert sentence is not None
    assert "was due at 2026-01-15 02:00 CET, 540 min ago, and begins at most 30 min late" in sentence


def test_how_late_it_may_begin_is_the_clusters_choice() -> None:
    assert too_late(cluster(2, nightly_late_s=7200), DUE, DUE + timedelta(minutes=110)) is None
