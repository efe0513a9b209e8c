"""A task whose supervising process dies: Airflow's own channel for what a task says, with nobody at its other end."""

import os
import signal
import subprocess
import sys

TASK = """
import socket

from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import CommsDecoder
from airflow.sdk.execution_time.supervisor import _configure_logs_over_json_channel

from scaleout.operators.base import SweepOperator


class Task(SweepOperator):
    def do(self, context):
        pass


logs, supervisor = socket.socketpair()
if UNDER_SCHEDULER:
    task_runner.SUPERVISOR_COMMS = CommsDecoder(socket=logs)
_configure_logs_over_json_channel(logs.detach())
task = Task(task_id="launch")
task.say("somebody listens")
print(supervisor.recv(65536).decode(), flush=True)
supervisor.close()
try:
    task.say("nobody listens")
except ConnectionError:
    print("an error, for which a gang would be stopped", flush=True)
"""


def run_task(under_scheduler: bool) -> tuple[int, str]:
    program = f"UNDER_SCHEDULER = {under_scheduler}\n{TASK}"
    done = subprocess.run([sys.executable, "-c", program], env=os.environ, capture_output=True, text=True, timeout=120)
    assert "somebody listens" in done.stdout, done.stderr
    return done.returncode, done.stdout


def test_a_task_that_nobody_listens_to_dies_as_its_supervisor_did_and_stops_no_gang() -> None:
    """The kernel closes a dying supervisor's descriptors before it ends what it had started."""
    status, said = run_task(under_scheduler=True)
    assert (status, "an error" in said) == (-signal.SIGKILL, False)


def test_without_a_scheduler_there_is_nobody_who_would_pick_a_gang_up() -> None:
    status, said = run_task(under_scheduler=False)
    assert (status, "an error" in said) == (0, True)
