"""The stack behind the UI: PostgreSQL, LocalExecutor, the DAG unpaused and triggered through REST. Tests run in order."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from datetime import datetime, timedelta
from urllib.parse import quote
from zoneinfo import ZoneInfo

import psutil
import pytest
from stacks import DAG, Up, command, stack_up
from world import World, wait_for

from scaleout.local.processes import Daemon, runs

ZONE = "Asia/Tokyo"


@pytest.fixture(scope="module")
def up(fault_world: World) -> Iterator[Up]:
    """The local cluster has a nightly sweep, whose last time was two hours ago.

    A DAG that never ran gets a run for the last time that it missed if that was less than a tenth of the interval ago.
    """
    missed = datetime.now(ZoneInfo(ZONE)) - timedelta(hours=2)
    with (fault_world.config_dir / "clusters" / "local.yaml").open("a") as out:
        out.write(
            f'node_counts: [{len(fault_world.nodes)}]\ntimezone: {ZONE}\nnightly: "{missed.minute} {missed.hour} * * *"\n'
        )
    nightly = fault_world.config_dir / "presets" / "nightly.yaml"
    nightly.write_text(nightly.read_text().replace("rounds: 3", "rounds: 1"))  # as many slots as are needed
    with stack_up(fault_world) as up:
        yield up


def test_up_tells_the_password_once_and_the_second_up_does_nothing(up: Up) -> None:
    assert up.stack.url in up.said and up.stack.home.password() in up.said
    before = {process.pid for process in up.stack.family()}
    again = command(up.world, "up")
    assert again.returncode == 0
    assert again.stdout == f"the stack is up: {up.stack.url}\n"
    assert before <= {process.pid for process in up.stack.family()}
    assert command(up.world, "status").returncode == 0


def test_only_who_knows_the_password_gets_in(up: Up) -> None:
    assert up.rest.ask("GET", "/api/v2/dags")[0] == 401
    assert up.rest.ask("GET", DAG)[0] == 401
    assert up.rest.ask("POST", "/auth/token", {"username": "admin", "password": "admin"})[0] == 401


def test_secrets_are_in_files_that_only_we_may_read_and_in_no_command_line(up: Up) -> None:
    home = up.stack.home
    assert stat.S_IMODE(up.stack.folder.stat().st_mode) == 0o700
    for name in ("passwords.json", "secrets.json", "airflow.cfg"):
        assert stat.S_IMODE((home.folder / name).stat().st_mode) == 0o600, name
    secrets = [home.password(), *json.loads((home.folder / "secrets.json").read_text()).values()]
    lines = [" ".join(process.cmdline()) for process in up.stack.family()]
    assert not [line for line in lines for secret in secrets if secret in line]


def test_nothing_listens_but_on_loopback(up: Up) -> None:
    pids = {process.pid for process in up.stack.family()}
    listening = [c for c in psutil.net_connections("inet") if c.status == psutil.CONN_LISTEN and c.pid in pids]
    assert {connection.laddr.ip for connection in listening} == {"127.0.0.1"}
    assert len({connection.laddr.port for connection in listening}) == 2


def test_unpausing_starts_no_sweep_for_the_night_that_was_missed(up: Up) -> None:
    assert up.runs() == {}
    up.ask("PATCH", DAG, {"is_paused": False})
    wait_for(up.runs, 30, "the run that Airflow makes for the last missed time")
    (run_id,) = up.runs()
    assert run_id.startswith("scheduled__")
    assert up.wait(run_id, 30) == "success"
    tasks = up.tasks(run_id)
    assert tasks.pop("plan") == "success"
    assert set(tasks.values()) == {"skipped"}
    assert "skipped: this nightly sweep was due at" in up.log(run_id, "plan")
    assert up.world.sweeps() == []


def test_a_sweep_triggered_with_a_form_is_green_and_its_results_are_there(up: Up) -> None:
    run_id = up.trigger(up.form)
    assert up.wait(run_id, 90) == "success", up.tasks(run_id)
    results = up.world.results()
    assert (results["run_id"], results["missing"]) == (run_id, [])
    assert [(row["nodes"], row["status"]) for row in results["trials"]] == [(len(up.world.nodes), "succeeded")]
    assert (up.world.latest() / "report.html").exists()
    assert "the stand-in launcher starts" in up.log(run_id, up.launch)
    up.world.assert_nothing_is_left()


def hanging(up: Up) -> str:
    """A sweep with a rank that hangs on each node."""
    for node in up.world.nodes:
        up.world.behave(node, hang=True)
    run_id = up.trigger(up.form)
    last = up.world.nodes[-1]
    folders = up.world.cluster.folder / last / "home" / "scaleout" / "runs"

    def rank_hangs() -> bool:
        hanging = [log for log in folders.glob(f"*/ssd-*/{last}/log") if not log.with_name("exit.json").exists()]
        return any("hangs" in log.read_text() for log in hanging)

    wait_for(rank_hangs, 60, f"the rank on {last}")
    assert up.world.command("processes", run_id).returncode == 1
    return run_id


def assert_stopped_for_good(up: Up, run_id: str) -> None:
    """Nothing of the run is left within seconds, nothing is tried again, the results say why, and the cluster is free."""
    wait_for(lambda: up.world.command("processes", run_id).returncode == 0, 15, "the ranks to end")
    assert up.wait(run_id, 60) == "failed"
    wait_for(lambda: up.tasks(run_id)["unlock"] == "success", 60, "the cluster to be given back")
    assert up.tasks(run_id)[up.launch] == "failed" and up.tries(run_id, up.launch) == 1
    up.world.assert_nothing_is_left()
    (missing,) = up.world.results()["missing"]
    assert missing == f"ssd on {up.on_all_nodes}, cold, round 1: stopped on request"


def test_a_launch_that_is_marked_failed_leaves_no_rank_and_fails_the_sweep(up: Up) -> None:
    run_id = hanging(up)
    up.ask("PATCH", f"{DAG}/dagRuns/{quote(run_id)}/taskInstances/{up.launch}", {"new_state": "failed"})
    assert_stopped_for_good(up, run_id)


def test_a_sweep_that_is_marked_failed_leaves_no_rank_and_gives_the_cluster_back(up: Up) -> None:
    run_id = hanging(up)
    up.ask("PATCH", f"{DAG}/dagRuns/{quote(run_id)}", {"state": "failed"})
    assert_stopped_for_good(up, run_id)


def test_a_launch_that_is_cleared_while_it_runs_is_stopped_and_launched_anew(up: Up) -> None:
    run_id = hanging(up)
    for node in up.world.nodes:
        up.world.behave(node)
    up.ask(
        "POST",
        f"{DAG}/clearTaskInstances",
        {"dry_run": False, "dag_run_id": run_id, "task_ids": [up.launch], "only_failed": False},
    )
    assert up.wait(run_id, 90) == "success", up.tasks(run_id)
    (row,) = up.world.results()["trials"]
    assert (row["trial"], row["notes"]) == (up.attempt(2), ["try 1: stopped on request"])
    assert json.loads((up.world.newest() / "sweep.json").read_text())["stopped"] is None
    up.world.assert_nothing_is_left()


def test_status_tells_of_a_part_that_died_and_down_leaves_no_process(up: Up) -> None:
    family = up.stack.family()
    dag_processor = Daemon("dag-processor", up.stack.folder).process()
    assert dag_processor is not None
    os.kill(dag_processor.pid, signal.SIGKILL)
    told = command(up.world, "status")
    assert told.returncode == 1
    assert "dag-processor: died; the end of" in told.stdout and "scheduler (pid " in told.stdout
    done = command(up.world, "down")
    assert done.returncode == 0 and "the stack is down" in done.stdout
    assert list(filter(runs, family)) == []
    assert up.stack.family() == []
    told = command(up.world, "status")
    assert (told.returncode, told.stdout) == (1, "the stack is down\n")
