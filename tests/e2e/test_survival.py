"""What a gang survives under a scheduler: task, worker and scheduler killed, on a stack of its own. Tests run in order."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Iterator

import psutil
import pytest
from stacks import DAG, Up, command, stack_up
from world import World, wait_for

from scaleout.local.airflow_home import airflow
from scaleout.local.processes import Daemon, runs
from scaleout.local.stack import API_SERVER, COMMANDS, SCHEDULER

# How soon Airflow notices deaths; its defaults are minutes.
NOTICES = {
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "8",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "1",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "2",
    "AIRFLOW__WORKERS__EXECUTION_API_RETRIES": "2",
}


@pytest.fixture(scope="module")
def up(fault_world: World) -> Iterator[Up]:
    set_lease(fault_world, None)
    with stack_up(fault_world, **NOTICES) as up:
        up.ask("PATCH", DAG, {"is_paused": False})
        yield up


@pytest.fixture(scope="module")
def run_id(up: Up) -> str:
    """One sweep for the tests up to that of its results: its ranks talk until they are told to go on."""
    return triggered(up)


def set_lease(world: World, lease_s: float | None) -> None:
    path = world.config_dir / "clusters" / "local.yaml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(("lease_s", "node_counts"))]
    path.write_text("\n".join([*lines, f"node_counts: [{len(world.nodes)}]", f"lease_s: {json.dumps(lease_s)}", ""]))


def go_on(up: Up) -> None:
    for node in up.world.nodes:
        up.world.behave(node)


def triggered(up: Up) -> str:
    """A sweep whose ranks talk on all nodes."""
    for node in up.world.nodes:
        up.world.behave(node, talk=True)
        (up.world.cluster.folder / node / "home" / "launches").unlink(missing_ok=True)
    run_id = up.trigger(up.form)
    wait_for(lambda: all(said(up, node) > 5 for node in up.world.nodes), 90, "ranks that talk on all nodes")
    return run_id


def said(up: Up, node: str) -> int:
    """Lines that the newest trial on a node has said, while it goes on."""
    logs = (up.world.cluster.folder / node / "home" / "scaleout" / "runs").glob(f"*/ssd-*/{node}/log")
    return max((log.read_text().count("line ") for log in logs if not log.with_name("exit.json").exists()), default=0)


def flushed(up: Up) -> int:
    calls = up.world.array_calls()
    return sum(call["program"] == "isi_for_array" and "isi_flush" in " ".join(call["arguments"]) for call in calls)


def scheduler_of(up: Up) -> psutil.Process:
    process = Daemon(SCHEDULER, up.stack.folder).process()
    assert process is not None
    return process


def worker_and_task(up: Up) -> tuple[psutil.Process, psutil.Process]:
    """The one worker that has a task, and the process of that task."""
    ((worker, (task,)),) = [
        (worker, tasks) for worker in scheduler_of(up).children() if (tasks := list(filter(runs, worker.children())))
    ]
    return worker, task


def wait_for_pick_up(up: Up, run_id: str, times: int, seconds: float) -> None:
    path = up.world.newest() / up.attempt(1) / "launch.json"
    wait_for(
        lambda: len(json.loads(path.read_text())["picked_up_wall_s"]) == times, seconds, "the gang to be picked up"
    )
    assert up.tasks(run_id)[up.launch] == "running"
    assert [up.world.launches(node) for node in up.world.nodes] == [[up.attempt(1)]] * len(up.world.nodes)


def test_a_killed_task_is_retried_and_picks_its_gang_up(up: Up, run_id: str) -> None:
    _, task = worker_and_task(up)
    os.kill(task.pid, signal.SIGKILL)
    wait_for_pick_up(up, run_id, 1, 60)
    assert up.tries(run_id, up.launch) == 2


def test_a_killed_worker_takes_its_task_with_it_and_the_gang_is_picked_up(up: Up, run_id: str) -> None:
    worker, task = worker_and_task(up)
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: not runs(task), 5, "the task to die with its worker")
    wait_for_pick_up(up, run_id, 2, 90)


def kill_scheduler(up: Up) -> None:
    scheduler = scheduler_of(up)
    os.kill(scheduler.pid, signal.SIGKILL)
    wait_for(lambda: not runs(scheduler), 10, "the scheduler to be gone")


def bring_up(up: Up) -> None:
    """`scaleout stack up`: what is missing of the stack."""
    done = command(up.world, "up", **NOTICES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_scheduler_that_comes_back_picks_the_gang_up_from_the_attempt_that_lives_on(up: Up, run_id: str) -> None:
    _, task = worker_and_task(up)
    kill_scheduler(up)
    assert runs(task)
    ours = {"SCALEOUT_HOME": str(up.world.home), "SCALEOUT_CONFIG_DIR": str(up.world.config_dir)}
    environment = {**up.stack.home.environment(), **ours, **NOTICES}
    Daemon(SCHEDULER, up.stack.folder).start([*airflow(), *COMMANDS[SCHEDULER]], environment)
    wait_for_pick_up(up, run_id, 3, 90)
    wait_for(lambda: not runs(task), 20, "the older attempt to let go")


def test_up_after_the_scheduler_was_killed_picks_the_gang_up_too(up: Up, run_id: str) -> None:
    kill_scheduler(up)
    bring_up(up)
    wait_for_pick_up(up, run_id, 4, 90)


def test_an_api_server_that_is_away_ends_the_attempt_and_not_the_gang(up: Up, run_id: str) -> None:
    _, task = worker_and_task(up)
    server = Daemon(API_SERVER, up.stack.folder).process()
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    wait_for(lambda: not runs(task), 60, "Airflow to end an attempt that it cannot follow")
    bring_up(up)
    wait_for_pick_up(up, run_id, 5, 120)


def test_after_all_that_the_results_are_green_and_the_last_attempt_has_the_whole_log(up: Up, run_id: str) -> None:
    go_on(up)
    assert up.wait(run_id, 90) == "success", up.tasks(run_id)
    assert [up.world.launches(node) for node in up.world.nodes] == [[up.attempt(1)]] * len(up.world.nodes)
    (row,) = up.world.results()["trials"]
    assert (row["status"], row["trial"]) == ("succeeded", up.attempt(1))
    assert row["notes"] == ["picked up 5 times after the orchestrator had died"]
    assert "picked up 5 times after the orchestrator had died" in up.world.command("show").stdout
    log = up.log(run_id, up.launch, up.tries(run_id, up.launch))
    assert "went on without an orchestrator" in log
    for node in up.world.nodes:
        (count,) = re.findall(rf"\[{node}\] the stand-in has said (\d+) lines", log)
        lines = Counter(map(int, re.findall(rf"\[{node}\] line (\d+) of the stand-in", log)))
        assert lines == Counter(range(1, int(count) + 1))
    sweep = json.loads((up.world.newest() / "sweep.json").read_text())
    assert (sweep["lease_s"], sweep["lock_ttl_s"]) == (600, 900)
    up.world.assert_nothing_is_left()


def test_when_the_lease_ran_out_meanwhile_a_clean_try_takes_the_gangs_place(up: Up) -> None:
    set_lease(up.world, 2)
    run_id = triggered(up)
    flushes = flushed(up)
    _, task = worker_and_task(up)
    os.kill(task.pid, signal.SIGKILL)
    wait_for(lambda: all(len(up.world.launches(node)) == 2 for node in up.world.nodes), 90, "a second launch")
    go_on(up)
    assert up.wait(run_id, 90) == "success", up.tasks(run_id)
    assert [up.world.launches(node) for node in up.world.nodes] == [[up.attempt(1), up.attempt(2)]] * len(
        up.world.nodes
    )
    assert flushed(up) == flushes + 1
    (row,) = up.world.results()["trials"]
    assert (row["status"], row["trial"]) == ("succeeded", up.attempt(2))
    (note,) = row["notes"]
    assert note.startswith("try 1: abandoned: node") and note.endswith("nobody renewed the lease for 2 s")
    records = [json.loads(path.read_text()) for path in sorted(up.world.newest().glob("ssd-*/launch.json"))]
    ports = {re.search(r"--master_port=(\d+)", record["commands"]["node1"])[1] for record in records}
    assert len(records) == len(ports) == 2
    assert (up.world.newest() / up.attempt(2) / "caches.json").exists()
    up.world.assert_nothing_is_left()
