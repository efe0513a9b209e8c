"""Sweeps that go wrong: what a user reads, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from world import World, end_group, wait_for

QUICK: dict[str, Any] = {"preset": "quick", "length": {"steps": 2}, "window_steps": 1}


def launched(world: World) -> list[str]:
    return sorted(path.parent.name for path in world.newest().glob("*/launch.json"))


def rank_hangs_on(world: World, node: str) -> bool:
    return any(
        "hangs" in log.read_text()
        for log in (world.cluster.folder / node / "home" / "scaleout" / "runs").glob(f"*/ssd-*/{node}/log")
        if not log.with_name("exit.json").exists()
    )


def test_a_failed_rank_ends_its_gang_and_the_sweep_goes_on(faults: World) -> None:
    faults.behave("node1", hang=False)
    faults.behave("node2", exit=9)
    status, output = faults.run({**QUICK, "nodes": [1, 2]})
    assert status == 1
    results = faults.results()
    assert [row["status"] for row in results["trials"]] == ["succeeded", "failed"]
    (missing,) = results["missing"]
    assert missing.startswith("ssd on 2 nodes") and "node2: failed: exit status 9" in missing
    assert "a rank of the stand-in fails on purpose" in missing
    assert results["trials"][1]["images_per_s"] is None
    assert "Traceback" not in output
    faults.assert_nothing_is_left()


@contextmanager
def sweep_that_hangs(world: World) -> Iterator[subprocess.Popen[str]]:
    """Of two trials, the first of which hangs on both of its nodes."""
    for node in ("node1", "node2"):
        world.behave(node, hang=True)
    process = world.start({**QUICK, "nodes": [2], "rounds": 2})
    try:
        wait_for(lambda: rank_hangs_on(world, "node1") and rank_hangs_on(world, "node2"), 90, "both ranks")
        yield process
    finally:
        end_group(process)


def test_ctrl_c_ends_the_gang_and_the_sweep(faults: World) -> None:
    with sweep_that_hangs(faults) as process:
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate(timeout=90)
    assert process.returncode == 1
    assert "stopped on request in r1_ssd_n2_cold.launch" in output
    assert launched(faults) == ["ssd-n2-cold-r1-t1"]
    assert len(faults.results()["missing"]) == 2
    faults.assert_nothing_is_left()


def test_sigterm_ends_the_gang_and_the_sweep(faults: World) -> None:
    with sweep_that_hangs(faults) as process:
        process.terminate()
        output, _ = process.communicate(timeout=90)
    assert process.returncode == 1 and "Traceback" not in output
    assert "stopped on request in r1_ssd_n2_cold.launch" in output
    assert launched(faults) == ["ssd-n2-cold-r1-t1"]
    faults.assert_nothing_is_left()


def test_sigterm_early_in_a_sweep_launches_nothing(faults: World) -> None:
    before = faults.sweeps()
    process = faults.start({**QUICK, "nodes": [2]})
    try:
        wait_for(lambda: len(faults.sweeps()) > len(before), 90, "the plan, with no task at work or the next one")
        process.terminate()
        output, _ = process.communicate(timeout=90)
    finally:
        end_group(process)
    assert process.returncode == 1 and "the sweep was stopped in" in output
    assert launched(faults) == []
    faults.assert_nothing_is_left()


def test_a_launch_over_airflows_time_limit_is_stopped_and_the_sweep_may_go_on(faults: World) -> None:
    faults.behave("node2", hang=True)
    status, output = faults.run({**QUICK, "nodes": [2]}, AIRFLOW__CORE__DEFAULT_TASK_EXECUTION_TIMEOUT="20")
    assert status == 1 and "Traceback" not in output
    (missing,) = faults.results()["missing"]
    assert (
        missing == "ssd on 2 nodes, cold, round 1: stopped after 0:00:20, the time limit that Airflow was given for it"
    )
    assert json.loads((faults.newest() / "sweep.json").read_text())["stopped"] is None
    faults.assert_nothing_is_left()


def test_a_killed_orchestrator_leaves_nothing_when_the_lease_has_run_out(faults: World) -> None:
    faults.behave("node1", hang=True)
    process = faults.start({**QUICK, "nodes": [1]})
    try:
        wait_for(lambda: rank_hangs_on(faults, "node1"), 90, "the rank")
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        run_id = faults.run_id()
        wait_for(lambda: faults.command("processes", run_id).returncode == 0, 30, "the lease to end the gang")
        (ended,) = (faults.cluster.folder / "node1" / "home" / "scaleout" / "runs").glob(
            f"{faults.newest().name}/ssd-*/*/exit.json"
        )
        assert json.loads(ended.read_text())["state"] == "lease_expired"
        refused, output = faults.run({**QUICK, "nodes": [1]})
    finally:
        end_group(process)
        faults.command("lock", "break")
    assert refused == 1 and f"is held by the sweep {run_id}" in output and "scaleout lock break" in output


def test_an_array_that_refuses_stops_the_trial_before_its_launch(faults: World) -> None:
    faults.behave("array", refuse=True)
    status, output = faults.run({**QUICK, "nodes": [1]})
    assert status == 1 and "refused `isi_for_array`" in output and "Privilege check failed" in output
    assert launched(faults) == []
    faults.assert_nothing_is_left()


def test_a_flush_that_one_array_node_did_not_do_is_not_cold(faults: World) -> None:
    faults.behave("array", fail_on=[3], exit_status_tells=False)
    # `workloads: []` is what the UI's form sends for an array that nobody has filled.
    status, output = faults.run({**QUICK, "nodes": [1], "workloads": []})
    assert status == 0, output[-3000:]
    (row,) = faults.results()["trials"]
    assert row["cache_state"] == "unproven"
    assert "3 of 4 array nodes acknowledged the flush" in row["reasons"]["cache_state"]


def test_an_unknown_key_in_the_form_is_one_sentence_and_touches_nothing(faults: World) -> None:
    before, calls = faults.sweeps(), faults.array_calls()
    status, output = faults.run({"preset": "quick", "lenght": {"steps": 2}})
    assert status == 1
    assert "trigger form: unknown key 'lenght'; did you mean 'length'?" in output
    assert "Traceback" not in output
    assert (faults.sweeps(), faults.array_calls()) == (before, calls)
