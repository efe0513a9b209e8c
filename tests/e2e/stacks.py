"""A stack that is up, and what a test asks of it."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from world import World, wait_for

from scaleout.local.rest import Rest
from scaleout.local.stack import Stack

DAG = "/api/v2/dags/scaling_benchmark"
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
    def form(self) -> dict[str, Any]:
        """Of a sweep of one trial, on all nodes."""
        return {"preset": "quick", "nodes": [len(self.world.nodes)], "length": {"steps": 2}, "window_steps": 1}

    @property
    def launch(self) -> str:
        """The task that launches that trial."""
        return f"r1_ssd_n{len(self.world.nodes)}_cold.launch"

    @property
    def on_all_nodes(self) -> str:
        count = len(self.world.nodes)
        return f"{count} node{'s' * (count > 1)}"

    def attempt(self, number: int) -> str:
        """The folder of that trial's attempt."""
        return f"ssd-n{len(self.world.nodes)}-cold-r1-t{number}"

    @property
    def rest(self) -> Rest:
        return self.stack.rest()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        status, answer = self.rest.ask(method, path, body, self.token)
        if method == "GET" and status == 0:  # a busy machine: nothing is done twice by asking again
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
        return {task_id: task["state"] for task_id, task in self._instances(run_id).items()}

    def tries(self, run_id: str, task_id: str) -> int:
        return self._instances(run_id)[task_id]["try_number"]

    def log(self, run_id: str, task_id: str, attempt: int = 1) -> str:
        return json.dumps(self.ask("GET", f"{DAG}/dagRuns/{quote(run_id)}/taskInstances/{task_id}/logs/{attempt}"))

    def _instances(self, run_id: str) -> dict[str, Any]:
        listed = self.ask("GET", f"{DAG}/dagRuns/{quote(run_id)}/taskInstances?limit=200")["task_instances"]
        return {task["task_id"]: task for task in listed}


@contextmanager
def stack_up(world: World, **environment: str) -> Iterator[Up]:
    """`scaleout stack up` in that environment, and `down` in the end."""
    stack = Stack(world.home / "stack")
    try:
        done = command(world, "up", **environment)
        assert done.returncode == 0, done.stdout + done.stderr
        token = stack.rest().token("admin", stack.home.password())
        assert token
        yield Up(world, stack, done.stdout, token)
    finally:
        command(world, "down")


def command(world: World, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`scaleout stack …`"""
    line = f". {shlex.quote(str(world.home / 'env.sh'))} && exec scaleout stack {shlex.join(arguments)}"
    return subprocess.run(
        ["sh", "-c", line],
        env={**world.environment(), **environment},
        capture_output=True,
        text=True,
        timeout=COMMAND_LIMIT_S,
    )
