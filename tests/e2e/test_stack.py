"""The stack behind the UI: PostgreSQL, LocalExecutor, the DAG unpaused and triggered through REST. Tests run in order."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import psutil
import pytest
from world import World, wait_for

from scaleout.local.processes import runs
from scaleout.local.rest import Rest
from scaleout.local.stack import Stack

DAG = "/api/v2/dags/scaling_benchmark"
ZONE = "Asia/Tokyo"
FORM: dict[str, Any] = {"preset": "quick", "nodes": [2], "length": {"steps": 2}, "window_steps": 1}
COMMAND_LIMIT_S = 240
POLL_S = 0.5


@dataclass(frozen=True)
class Up:
    """A stack that is up, what `up` said, and a token for its API."""

    world: World
    stack: Stack
    said: str
    token: str

    @property
    def rest(self) -> Rest:
        return self.stack.rest()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.rest.ask(method, path, body, self.token)
        assert status in (200, 201), (method, path, status, answer)
        return answer

    def trigger(self, form: dict[str, Any]) -> str:
        """The run_id."""
        return self.ask("POST", f"{DAG}/dagRuns", {"logical_date": None, "conf": form})["dag_run_id"]

    def runs(self) -> dict[str, str]:
        """The state of every run, by run_id; after a pause, since it is asked again and again of the server under test."""
        time.sleep(POLL_S)
        return {run["dag_run_id"]: run["state"] for run in self.ask("GET", f"{DAG}/dagRuns")["dag_runs"]}

    def wait(self, run_id: str, seconds: float) -> str:
        wait_for(lambda: self.runs()[run_id] in ("success", "failed"), seconds, f"{run_id} to end")
        return self.runs()[run_id]

    def tasks(self, run_id: str) -> dict[str, str]:
        """The state of every task, by task_id."""
        listed = self.ask("GET", f"{DAG}/dagRuns/{quote(run_id)}/taskInstances?limit=200")["task_instances"]
        return {task["task_id"]: task["state"] for task in listed}

    def log(self, run_id: str, task_id: str) -> str:
        return json.dumps(self.ask("GET", f"{DAG}/dagRuns/{quote(run_id)}/taskInstances/{task_id}/logs/1"))


def command(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`scaleout stack …`"""
    line = f". {shlex.quote(str(world.home / 'env.sh'))} && exec scaleout stack {shlex.join(arguments)}"
    environment = world.environment()
    return subprocess.run(["sh", "-c", line], env=environment, capture_output=True, text=True, timeout=COMMAND_LIMIT_S)


@pytest.fixture(scope="module")
def up(fault_world: World) -> Iterator[Up]:
    """The local cluster has a nightly sweep, whose last time was two hours ago.

    A DAG that never ran gets a run for the last time that it missed if that was less than a tenth of the interval ago.
    """
    missed = datetime.now(ZoneInfo(ZONE)) - timedelta(hours=2)
    with (fault_world.config_dir / "clusters" / "local.yaml").open("a") as out:
        out.write(f'node_counts: [2]\ntimezone: {ZONE}\nnightly: "{missed.minute} {missed.hour} * * *"\n')
    nightly = fault_world.config_dir / "presets" / "nightly.yaml"
    nightly.write_text(nightly.read_text().replace("rounds: 3", "rounds: 1"))  # as many slots as are needed
    stack = Stack(fault_world.home / "stack")
    try:
        done = command(fault_world, "up")
        assert done.returncode == 0, done.stdout + done.stderr
        token = stack.rest().token("admin", stack.home.password())
        assert token
        yield Up(fault_world, stack, done.stdout, token)
    finally:
        command(fault_world, "down")


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
    run_id = up.trigger(FORM)
    assert up.wait(run_id, 90) == "success", up.tasks(run_id)
    results = up.world.results()
    assert (results["run_id"], results["missing"]) == (run_id, [])
    assert [(row["nodes"], row["status"]) for row in results["trials"]] == [(2, "succeeded")]
    assert (up.world.latest() / "report.html").exists()
    assert "the stand-in launcher starts" in up.log(run_id, "r1_ssd_n2_cold.launch")
    up.world.assert_nothing_is_left()


def test_a_launch_that_is_marked_failed_leaves_no_rank_and_fails_the_sweep(up: Up) -> None:
    for node in ("node1", "node2"):
        up.world.behave(node, hang=True)
    run_id = up.trigger(FORM)
    folders = up.world.cluster.folder / "node2" / "home" / "scaleout" / "runs"

    def rank_hangs() -> bool:
        hanging = [log for log in folders.glob("*/ssd-n2-*/node2/log") if not log.with_name("exit.json").exists()]
        return any("hangs" in log.read_text() for log in hanging)

    wait_for(rank_hangs, 60, "the rank on node2")
    assert up.world.command("processes", run_id).returncode == 1
    task = f"{DAG}/dagRuns/{quote(run_id)}/taskInstances/r1_ssd_n2_cold.launch"
    up.ask("PATCH", task, {"new_state": "failed"})
    wait_for(lambda: up.world.command("processes", run_id).returncode == 0, 15, "the ranks to end")
    assert up.wait(run_id, 60) == "failed"
    assert up.tasks(run_id)["unlock"] == "success"
    up.world.assert_nothing_is_left()


def test_status_tells_of_a_part_that_died_and_down_leaves_no_process(up: Up) -> None:
    family = up.stack.family()
    (dag_processor,) = [p for p in family if runs(p) and "dag-processor" in p.cmdline()]
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
