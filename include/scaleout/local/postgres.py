"""A private PostgreSQL server of Debian's binaries: one database, one login with a password, on a loopback port."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scaleout.errors import ScaleoutError
from scaleout.local.packages import install
from scaleout.local.ports import ADDRESS, refuse_taken
from scaleout.local.processes import Daemon, end

Say = Callable[[str], None]

INSTALLED = Path("/usr/lib/postgresql")
NAME = "airflow"  # of the database and of its owner
START_LIMIT_S = 30.0
STOP_LIMIT_S = 20.0


@dataclass(frozen=True)
class Postgres:
    """The server whose data is `folder`. Nobody can log in but the owner of the database, over TCP, with its password."""

    folder: Path
    port: int
    daemon: Daemon

    def url(self, password: str) -> str:
        """For SQLAlchemy."""
        return f"postgresql+psycopg2://{NAME}:{password}@{ADDRESS}:{self.port}/{NAME}"

    def start(self, password: str, say: Say) -> None:
        """Starts the server unless it runs, and makes its data the first time. Raises ScaleoutError."""
        if self.daemon.process() is not None:
            return
        if not self.folder.exists():
            self._create(password, say)
        refuse_taken(self.port, self.daemon.name, f"remove {self.folder.parent / 'stack.json'} for other ports")
        listen = {"listen_addresses": ADDRESS, "port": self.port, "unix_socket_directories": ""}
        options = [
            part for key, value in {"cluster_name": "scaleout", **listen}.items() for part in ("-c", f"{key}={value}")
        ]
        with _data(self.folder) as (data, how):
            self.daemon.start(
                [str(self._programs() / "postgres"), "-D", data, *options], _environment(), **_as_other_user(), **how
            )
        self._wait()

    def stop(self) -> None:
        """Ends sessions and server at once, cleanly."""
        process = self.daemon.process()
        if process is not None:
            end([process], signal.SIGINT, STOP_LIMIT_S)
        self.daemon.forget()

    def _create(self, password: str, say: Say) -> None:
        programs = self._programs(say)
        say(f"{self.daemon.name}: making a database in {self.folder} (once)")
        partial = self.folder.with_name(f"{self.folder.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(mode=0o700)
        user = _as_other_user()
        if user:
            os.chown(partial, user["user"], user["group"])
        with _data(partial) as (data, how):
            how = {**how, **user}
            initdb = ["initdb", "-D", data, "--username=postgres", "--auth=reject", "--encoding=UTF8", "--locale=C"]
            self._run([str(programs / initdb[0]), *initdb[1:], "--no-instructions"], "", how)
            with (partial / "pg_hba.conf").open("w") as rules:
                rules.write(f"host {NAME} {NAME} {ADDRESS}/32 scram-sha-256\n")
            statements = f"CREATE ROLE {NAME} LOGIN PASSWORD '{password}';\nCREATE DATABASE {NAME} OWNER {NAME};\n"
            told = self._run([str(programs / "postgres"), "--single", "-D", data, "postgres"], statements, how)
            if "ERROR:" in told:
                raise ScaleoutError(f"{self.daemon.name}: the database was refused: {told.strip()[-500:]}")
        partial.rename(self.folder)

    def _run(self, command: list[str], statements: str, how: dict[str, Any]) -> str:
        done = subprocess.run(
            command, input=statements, env=_environment(), cwd="/", text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, **how,
        )  # fmt: skip
        if done.returncode != 0:
            raise ScaleoutError(f"{self.daemon.name}: {Path(command[0]).name} failed: {done.stdout.strip()[-500:]}")
        return done.stdout

    def _wait(self) -> None:
        ready = [
            str(self._programs() / "pg_isready"),
            "-q",
            "-h",
            ADDRESS,
            "-p",
            str(self.port),
            "-U",
            NAME,
            "-d",
            NAME,
        ]
        deadline = time.monotonic() + START_LIMIT_S
        while subprocess.run(ready, env=_environment(), cwd="/").returncode != 0:
            if self.daemon.process() is None or time.monotonic() > deadline:
                raise ScaleoutError(
                    f"{self.daemon.name}: does not start; the end of {self.daemon.log}:\n{self.daemon.last_words()}"
                )
            time.sleep(0.05)

    def _programs(self, say: Say = lambda _: None) -> Path:
        """The programs that fit the data; the newest ones where there is none yet."""
        version_file = self.folder / "PG_VERSION"
        if version_file.exists():
            wanted = INSTALLED / version_file.read_text().strip() / "bin"
            if not (wanted / "postgres").exists():
                raise ScaleoutError(
                    f"{self.folder}: is data of PostgreSQL {wanted.parent.name}, which is not in {INSTALLED}: install "
                    f"postgresql-{wanted.parent.name}, or remove the folder for a new database"
                )
            return wanted
        if not _installed():
            install("postgresql", what="PostgreSQL", size="20 MB", say=say)
        return max(_installed(), key=lambda programs: float(programs.parent.name))


def _installed() -> list[Path]:
    found = [path.parent for path in INSTALLED.glob("*/bin/initdb")]
    return [path for path in found if re.fullmatch(r"[\d.]+", path.parent.name) and (path / "postgres").exists()]


@contextmanager
def _data(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The folder's path for PostgreSQL, and what Popen needs for it.

    PostgreSQL refuses to run as root and then runs as another user, who often may not enter the folders above its data
    (/root, or a folder of mode 700). So it gets the data as an open descriptor: a path through /proc/self/fd leads
    straight there, asks for no right on the way, and is inherited by every process of the server.
    """
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}", {"pass_fds": [descriptor]}
    finally:
        os.close(descriptor)


def _as_other_user() -> dict[str, Any]:
    """The user of Debian's package where we are root, else ourselves."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise ScaleoutError("PostgreSQL refuses to run as root, and there is no user postgres or nobody: make one")


def _environment() -> dict[str, str]:
    """Nothing of ours: no secret, and no PG… variable that changes what is started."""
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
