"""Makes the two environments from their locks, and the file that names them.

Standard library only: this runs before anything is installed. Run again, it does nothing but check.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT / "include"))

from scaleout import settings  # noqa: E402

REPORT_EVERY_S = 10.0


@dataclass(frozen=True)
class Environment:
    """One virtual environment; the costs are those seen when its lock was made (x86-64, Python 3.11)."""

    name: str
    download_bytes: int
    disk_bytes: int

    @property
    def lock(self) -> Path:
        return CHECKOUT / "requirements" / f"{self.name}.lock"

    @property
    def lock_sha256(self) -> str:
        return hashlib.sha256(self.lock.read_bytes()).hexdigest()


ENVIRONMENTS = (
    Environment("orchestrator", download_bytes=170 * 10**6, disk_bytes=620 * 10**6),
    Environment("node", download_bytes=3_400 * 10**6, disk_bytes=7_100 * 10**6),
)


class SetupError(Exception):
    """What the user must do something about."""


def venvs() -> Path:
    return Path(os.environ.get("SCALEOUT_VENVS") or settings.home() / "venv").resolve()


def say(text: str) -> None:
    print(f"setup: {text}", flush=True)


def stamp_path(environment: Environment) -> Path:
    return venvs() / environment.name / "installed-lock.sha256"


def is_installed(environment: Environment) -> bool:
    stamp = stamp_path(environment)
    return stamp.exists() and stamp.read_text().strip() == environment.lock_sha256


def check_disk(missing: list[Environment]) -> None:
    needed = sum(e.disk_bytes for e in missing)
    folder = venvs()
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < needed * 1.1:
        raise SetupError(
            f"{folder} has {free / 1e9:.1f} GB free and the environments need {needed * 1.1 / 1e9:.1f} GB: "
            "free some, or name another folder in SCALEOUT_VENVS"
        )


def start_install(environment: Environment) -> tuple[subprocess.Popen[bytes], Path]:
    target = venvs() / environment.name
    stamp_path(environment).unlink(missing_ok=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(target)], check=True)
    log = settings.home() / "logs" / f"setup-{environment.name}.log"
    command = [
        str(target / "bin" / "python"), "-m", "pip", "install", "--require-hashes", "--no-deps",
        "--progress-bar", "off", "--disable-pip-version-check", "-r", str(environment.lock),
    ]  # fmt: skip
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    return process, log


def progress(environment: Environment, log: Path) -> str:
    text = log.read_text(errors="replace")
    if "Installing collected packages" in text:
        return f"{environment.name}: unpacking"
    pins = sum(1 for line in environment.lock.read_text().splitlines() if "==" in line)
    return f"{environment.name}: {text.count('Collecting ')} of about {pins} packages fetched"


def install(missing: list[Environment]) -> None:
    started = time.monotonic()
    running = {e: start_install(e) for e in missing}
    next_report = started + REPORT_EVERY_S
    try:
        while any(process.poll() is None for process, _ in running.values()):
            time.sleep(0.2)
            if time.monotonic() >= next_report:
                next_report += REPORT_EVERY_S
                states = [progress(e, log) for e, (p, log) in running.items() if p.poll() is None]
                say(f"{time.monotonic() - started:4.0f} s  {'; '.join(states)}")
    finally:
        for process, _ in running.values():
            if process.poll() is None:
                process.terminate()
                process.wait()
    for environment, (process, log) in running.items():
        if process.returncode != 0:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-8:])
            raise SetupError(f"the {environment.name} environment could not be installed; the end of {log}:\n{tail}")
        (add_checkout_to_path if environment.name == "orchestrator" else lambda: None)()
        stamp_path(environment).write_text(environment.lock_sha256 + "\n")
    say(f"environments installed in {time.monotonic() - started:.0f} s under {venvs()}")


def add_checkout_to_path() -> None:
    """Lets the orchestrator import `scaleout` (include/) and `training.wire` (the checkout), and gives it its command."""
    environment = venvs() / "orchestrator"
    (site_packages,) = environment.glob("lib/python3.*/site-packages")
    (site_packages / "scaleout-checkout.pth").write_text(f"{CHECKOUT / 'include'}\n{CHECKOUT}\n")
    script = environment / "bin" / "scaleout"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(environment / "bin" / "python"))} -m scaleout.cli "$@"\n')
    script.chmod(0o755)


def airflow_settings() -> dict[str, str]:
    """Settings of the Airflow that `airflow dags test` uses: its own home and database, shared with no scheduler."""
    return {"AIRFLOW_HOME": str(settings.home() / "airflow"), **settings.airflow_settings()}


def write_env_file() -> Path:
    """Writes the file that a user sources before typing `airflow` or `scaleout`."""
    # Airflow reads its own files in the locale's encoding, and fails where that is not UTF-8.
    fixed = {
        "PYTHONUTF8": "1",
        "SCALEOUT_HOME": str(settings.home()),
        "SCALEOUT_VENVS": str(venvs()),
        **airflow_settings(),
    }
    chosen = {"SCALEOUT_CONFIG_DIR": str(CHECKOUT / "include"), "SCALEOUT_CLUSTER": "local"}
    lines = ["# Written by `make setup`. Source it:  . .scaleout/env.sh"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in fixed.items()]
    lines += [
        f'export {name}="${{{name}:-}}"; [ -n "${name}" ] || {name}={shlex.quote(v)}' for name, v in chosen.items()
    ]
    lines += [f'export PATH={shlex.quote(str(venvs() / "orchestrator" / "bin"))}:"$PATH"', ""]
    path = settings.home() / "env.sh"
    path.write_text("\n".join(lines))
    return path


def migrate_database() -> None:
    airflow_home = settings.home() / "airflow"
    airflow_home.mkdir(parents=True, exist_ok=True)
    airflow_home.chmod(0o700)
    stamp = airflow_home / "migrated-for-lock.sha256"
    wanted = ENVIRONMENTS[0].lock_sha256
    if stamp.exists() and stamp.read_text() == wanted:
        return
    log = settings.home() / "logs" / "setup-airflow-db.log"
    command = [str(venvs() / "orchestrator" / "bin" / "airflow"), "db", "migrate"]
    with log.open("wb") as out:
        done = subprocess.run(
            command,
            env={**os.environ, **airflow_settings()},
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    if done.returncode != 0:
        raise SetupError(f"`airflow db migrate` failed; see {log}")
    stamp.write_text(wanted)


def main() -> int:
    argparse.ArgumentParser(description=__doc__).parse_args()
    if not (3, 11) <= sys.version_info[:2] <= (3, 11):
        raise SetupError(
            f"this is Python {sys.version.split()[0]} and the locks are for 3.11: name one with `make setup PYTHON=python3.11`"
        )
    (settings.home() / "logs").mkdir(parents=True, exist_ok=True)
    missing = [e for e in ENVIRONMENTS if not is_installed(e)]
    if missing:
        download = sum(e.download_bytes for e in missing) / 1e9
        disk = sum(e.disk_bytes for e in missing) / 1e9
        say(
            f"installing {' and '.join(e.name for e in missing)}: about {download:.1f} GB to download "
            f"(less if packages lie on this disk), {disk:.1f} GB of disk in {venvs()}, 2 to 4 minutes at 300 Mb/s"
        )
        check_disk(missing)
        install(missing)
    migrate_database()
    env_file = write_env_file()
    say(f"ready; `. {env_file}` puts `airflow` and `scaleout` on the PATH")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except SetupError as error:
        sys.exit(f"setup: {error}")
    except KeyboardInterrupt:
        sys.exit("setup: interrupted; run it again to go on")
