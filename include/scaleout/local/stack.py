"""The stack behind the UI: api-server, scheduler and dag-processor of Airflow, and their database, on loopback ports.

There is no triggerer, because no task of ours defers.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import psutil

from scaleout import settings
from scaleout.errors import ScaleoutError
from scaleout.exclusive import alone_in
from scaleout.local.airflow_home import USER, AirflowHome, airflow
from scaleout.local.ports import ADDRESS, free_port, refuse_taken
from scaleout.local.postgres import Postgres
from scaleout.local.processes import Daemon, end, runs, send, wait_gone
from scaleout.local.rest import Rest

Say = Callable[[str], None]
Database = Literal["postgresql", "sqlite"]

DATABASE = "postgresql"
API_SERVER, SCHEDULER, DAG_PROCESSOR = "api-server", "scheduler", "dag-processor"
# Airflow's log servers would listen on all interfaces; here the UI reads the log files themselves.
COMMANDS = {
    API_SERVER: ["api-server"],
    SCHEDULER: ["scheduler", "--skip-serve-logs"],
    DAG_PROCESSOR: ["dag-processor"],
}
DAG_ID = "scaling_benchmark"
START_LIMIT_S = 180.0
STOP_LIMIT_S = 15.0
TASK_STOP_LIMIT_S = 60.0
REPORT_EVERY_S = 5.0


@dataclass(frozen=True)
class Part:
    """One process of the stack as `status` tells it; `problem` is None for one that is well."""

    name: str
    pid: int | None
    problem: str | None


@dataclass(frozen=True)
class Stack:
    """All of it is in `folder`, which nobody else may enter. Ports, password and data stay over `down`."""

    folder: Path

    @property
    def home(self) -> AirflowHome:
        return AirflowHome(self.folder / "airflow")

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self._state()['ports'][API_SERVER]}"

    def up(self, database: Database | None, say: Say) -> None:
        """Starts what does not run and waits until all of it is well. Raises ScaleoutError, and then stops it all."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        with self._alone():
            self._agree(database)
            state = self._state()
            if all(daemon.process() for daemon in self._daemons()):
                say(f"the stack is up: {self.url}")
                return
            try:
                self._start(state, say)
            except BaseException:
                self._stop(lambda _: None)
                raise

    def down(self, say: Say) -> None:
        """Stops everything that `up` started. A sweep that runs is stopped with it."""
        if not self._state_file.exists():
            say("the stack is down")
            return
        with self._alone():
            started = time.monotonic()
            self._stop(say)
            say(f"the stack is down ({time.monotonic() - started:.1f} s); its data stays in {self.folder}")

    def status(self) -> list[Part]:
        """The parts in the order of their start; none when the stack was never up, or is down."""
        if not self._state_file.exists():
            return []
        daemons = self._daemons()
        if not any(daemon.pid_file.exists() for daemon in daemons):
            return []
        health = self.rest().health() if self._daemon(API_SERVER).process() else {}
        return [self._part(daemon, health) for daemon in daemons]

    def rest(self) -> Rest:
        return Rest(self._state()["ports"][API_SERVER])

    def family(self) -> list[psutil.Process]:
        """Every process of the stack."""
        return [process for daemon in self._daemons() for process in daemon.family()]

    def _start(self, state: dict[str, Any], say: Say) -> None:
        started, started_at = time.monotonic(), datetime.now(UTC)
        new_password = self.home.make()
        database = self._start_database(state, say)
        port = state["ports"][API_SERVER]
        self.home.configure(port, database)
        if self._daemon(API_SERVER).process() is None:
            refuse_taken(port, API_SERVER, f"remove {self._state_file} for other ports")
        say(f"airflow: preparing its database ({state['database']})")
        self.home.migrate(state["database"], self.folder / "logs" / "migrate.log")
        for name, arguments in COMMANDS.items():
            daemon = self._daemon(name)
            if daemon.process() is None:
                # A scheduler that died may have left tasks. They are not asked to end: their gangs are to be picked up.
                end(daemon.family(), signal.SIGKILL, STOP_LIMIT_S)
                daemon.start([*airflow(), *arguments], self.home.environment())
        self._wait(started, started_at, say)
        say(f"the stack is up after {time.monotonic() - started:.0f} s: {self.url}")
        if new_password:
            say(f"log in as {USER} with the password {self.home.password()} (shown this once)")
        say(f"the password of {USER} is in {self.home.passwords_file}")

    def _start_database(self, state: dict[str, Any], say: Say) -> str:
        """Gives its URL."""
        if state["database"] == "sqlite":
            return f"sqlite:///{self.home.folder / 'airflow.db'}"
        server, password = self._postgres(), self.home.secret("database_password")
        server.start(password, say)
        return server.url(password)

    def _wait(self, started: float, started_at: datetime, say: Say) -> None:
        next_report = started + REPORT_EVERY_S
        while (missing := self._missing(started_at)) is not None:
            for daemon in self._daemons():
                if daemon.process() is None:
                    raise ScaleoutError(f"{daemon.name} ended; the end of {daemon.log}:\n{daemon.last_words()}")
            now = time.monotonic()
            if now > started + START_LIMIT_S:
                raise ScaleoutError(
                    f"after {START_LIMIT_S:g} s there is still no {missing}; see {self.folder / 'logs'}"
                )
            if now > next_report:
                next_report = now + REPORT_EVERY_S
                say(f"{now - started:4.0f} s  waiting for the {missing}")
            time.sleep(0.3)

    def _missing(self, started_at: datetime) -> str | None:
        """What is not well yet, in the order in which it comes."""
        health = self.rest().health()
        if not health:
            return API_SERVER
        for name, key in ((SCHEDULER, "scheduler"), (DAG_PROCESSOR, "dag_processor")):
            beat = health[key].get(f"latest_{key}_heartbeat")
            if beat is None or datetime.fromisoformat(beat) < started_at:
                return f"{name} to give a sign of life"
        token = self.rest().token(USER, self.home.password())
        status, _ = self.rest().ask("GET", f"/api/v2/dags/{DAG_ID}", token=token)
        return None if status == 200 else f"DAG {DAG_ID}"

    def _stop(self, say: Say) -> None:
        self._stop_scheduler(say)
        for name in (DAG_PROCESSOR, API_SERVER):
            daemon = self._daemon(name)
            end(daemon.family(), signal.SIGTERM, STOP_LIMIT_S)
            daemon.forget()
        self._postgres().stop()

    def _stop_scheduler(self, say: Say) -> None:
        """The scheduler waits for its tasks, so they are asked to end too: that stops a gang on its nodes."""
        daemon = self._daemon(SCHEDULER)
        scheduler, family = daemon.process(), daemon.family()
        if scheduler is not None:
            workers = scheduler.children()
            tasks = [p for p in family if p != scheduler and p not in workers]
            if tasks:
                say(f"stopping a running task, and with it the sweep (up to {TASK_STOP_LIMIT_S:g} s)")
            for process in [*tasks, scheduler]:
                send(process, signal.SIGTERM)
            wait_gone(family, TASK_STOP_LIMIT_S if tasks else STOP_LIMIT_S)
        end([p for p in daemon.family() if runs(p)], signal.SIGTERM, STOP_LIMIT_S)
        daemon.forget()

    def _part(self, daemon: Daemon, health: dict[str, dict[str, Any]]) -> Part:
        process = daemon.process()
        if process is None:
            why = f"died; the end of {daemon.log}:\n{daemon.last_words()}" if daemon.has_died() else "is down"
            return Part(daemon.name, None, why)
        key = {API_SERVER: "metadatabase", SCHEDULER: "scheduler", DAG_PROCESSOR: "dag_processor"}.get(daemon.name)
        if key is None:
            return Part(daemon.name, process.pid, None)
        if not health:
            return Part(daemon.name, process.pid, "does not answer" if daemon.name == API_SERVER else None)
        well = health[key]["status"] == "healthy"
        return Part(daemon.name, process.pid, None if well else f"Airflow says that {key} is {health[key]['status']}")

    def _daemons(self) -> list[Daemon]:
        database = ["postgresql"] if self._state()["database"] == "postgresql" else []
        return [self._daemon(name) for name in (*database, *COMMANDS)]

    def _daemon(self, name: str) -> Daemon:
        return Daemon(name, self.folder)

    def _postgres(self) -> Postgres:
        return Postgres(self.folder / "postgresql", self._state()["ports"]["postgresql"], self._daemon("postgresql"))

    @property
    def _state_file(self) -> Path:
        return self.folder / "stack.json"

    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self._state_file.read_text())
        return state

    def _agree(self, database: Database | None) -> None:
        """Settles database, cluster and ports; while anything runs they cannot change. Raises ScaleoutError."""
        before = self._state() if self._state_file.exists() else {}
        wanted = {
            "database": database or before.get("database", DATABASE),
            "cluster": settings.cluster_name(),
            "config_dir": str(settings.config_dir()),
        }
        if before and any(daemon.process() for daemon in self._daemons()):
            for key, value in wanted.items():
                if before[key] != value:
                    raise ScaleoutError(
                        f"the stack is up with the {key} {before[key]} and not {value}: `scaleout stack down` first"
                    )
        ports = before.get("ports") or {name: free_port() for name in (API_SERVER, "postgresql")}
        self._state_file.write_text(json.dumps({**wanted, "ports": ports}, indent=1) + "\n")

    def _alone(self) -> AbstractContextManager[None]:
        refusal = ScaleoutError(f"another `scaleout stack` works on {self.folder}: wait until it has ended")
        return alone_in(self.folder, refusal)


def local_stack() -> Stack:
    """The stack in `$SCALEOUT_HOME`."""
    return Stack(settings.home() / "stack")
