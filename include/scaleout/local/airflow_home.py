"""The Airflow home of the stack: `airflow.cfg`, the secrets in it, the password of its UI, the schema of its database."""

from __future__ import annotations

import base64
import configparser
import importlib.metadata
import json
import os
import secrets
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from scaleout import settings
from scaleout.errors import ScaleoutError
from scaleout.local.ports import ADDRESS

USER = "admin"
# A sweep's tasks run one after the other, but a worker is busy for about 5 s more after a task has ended.
PARALLELISM = 4


@dataclass(frozen=True)
class AirflowHome:
    """Never the home of `airflow dags test`: a scheduler would take that run's tasks."""

    folder: Path

    @property
    def passwords_file(self) -> Path:
        return self.folder / "passwords.json"

    def make(self) -> bool:
        """Makes folder, secrets and password unless they are there. True when they were not."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        if not self._secrets_file.exists():
            write_private(self._secrets_file, json.dumps(new_secrets(), indent=1) + "\n")
        if self.passwords_file.exists():
            return False
        write_private(self.passwords_file, json.dumps({USER: new_password()}) + "\n")
        return True

    def secret(self, name: str) -> str:
        value: str = json.loads(self._secrets_file.read_text())[name]
        return value

    def password(self) -> str:
        """Of the user `admin`."""
        value: str = json.loads(self.passwords_file.read_text())[USER]
        return value

    def configure(self, port: int, database_url: str) -> None:
        """Writes `airflow.cfg`."""
        config = configparser.ConfigParser(interpolation=None)
        for name, value in self._settings(port, database_url).items():
            _, section, key = name.split("__")
            if not config.has_section(section.lower()):
                config.add_section(section.lower())
            config.set(section.lower(), key.lower(), value.replace("%", "%%"))
        path = self.folder / "airflow.cfg"
        write_private(path, "")
        with path.open("a", encoding="utf-8") as out:
            out.write(
                "# Written by `scaleout stack up`. Settings of your own: AIRFLOW__SECTION__KEY in its environment.\n\n"
            )
            config.write(out)

    def environment(self) -> dict[str, str]:
        """Ours, without what would overrule `airflow.cfg`. No secret is in it."""
        fixed = {f"{name}{end}" for name in self._settings(0, "") for end in ("", "_CMD", "_SECRET")}
        inherited = {k: v for k, v in os.environ.items() if k not in fixed and k != "AIRFLOW_CONFIG"}
        return {
            **inherited,
            "PYTHONUTF8": "1",  # Airflow reads its own files in the locale's encoding
            "AIRFLOW_HOME": str(self.folder),
            "SCALEOUT_HOME": str(settings.home()),
            "SCALEOUT_CONFIG_DIR": str(settings.config_dir()),
            "SCALEOUT_CLUSTER": settings.cluster_name(),
            "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        }

    def migrate(self, database: str, log: Path) -> None:
        """Brings the database to this Airflow's schema, where it was not yet. Raises ScaleoutError."""
        stamp = self.folder / f"migrated-{database}"
        wanted = importlib.metadata.version("apache-airflow")
        if stamp.exists() and stamp.read_text() == wanted:
            return
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            done = subprocess.run(
                [*airflow(), "db", "migrate"], env=self.environment(), stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        if done.returncode != 0:
            raise ScaleoutError(f"`airflow db migrate` failed; see {log}")
        stamp.write_text(wanted)

    @property
    def _secrets_file(self) -> Path:
        return self.folder / "secrets.json"

    def _settings(self, port: int, database_url: str) -> dict[str, str]:
        url = f"http://{ADDRESS}:{port}"
        private = ("fernet_key", "jwt_secret", "secret_key")
        known = (
            json.loads(self._secrets_file.read_text()) if self._secrets_file.exists() else dict.fromkeys(private, "")
        )
        return {
            **settings.airflow_settings(),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": str(PARALLELISM),
            "AIRFLOW__CORE__AUTH_MANAGER": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.passwords_file),
            "AIRFLOW__CORE__FERNET_KEY": known["fernet_key"],
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database_url,
            "AIRFLOW__API__HOST": ADDRESS,
            "AIRFLOW__API__PORT": str(port),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__API__WORKERS": "1",
            "AIRFLOW__API__SECRET_KEY": known["secret_key"],
            "AIRFLOW__API_AUTH__JWT_SECRET": known["jwt_secret"],
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self.folder / "logs"),
            "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
        }


def airflow() -> list[str]:
    """The command `airflow` of this environment."""
    return [sys.executable, "-m", "airflow"]


def new_secrets() -> dict[str, str]:
    """Fresh values of what Airflow and its database share with nobody. None needs quoting, in a URL or in a shell."""
    fernet_key = base64.urlsafe_b64encode(os.urandom(32)).decode()
    generated = {name: secrets.token_urlsafe(32) for name in ("jwt_secret", "secret_key", "database_password")}
    return {"fernet_key": fernet_key, **generated}


def new_password() -> str:
    """For a person to type."""
    return secrets.token_urlsafe(12)


def write_private(path: Path, text: str) -> None:
    """Only we may read it, from the first byte on."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
