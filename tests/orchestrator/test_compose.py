"""The production file: what it asks for is what `make compose-env` writes, and its Airflow is set like the laptop's."""

from __future__ import annotations

import configparser
import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from scaleout import settings
from scaleout.local.airflow_home import AirflowHome

COMPOSE_FILE = settings.CHECKOUT / "docker-compose.yaml"
SECRETS = {"ADMIN_PASSWORD", "DATABASE_PASSWORD", "FERNET_KEY", "JWT_SECRET", "SECRET_KEY"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return YAML(typ="safe").load(COMPOSE_FILE.read_text())


def started(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(settings.CHECKOUT / "tools" / "compose_env.py"), "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def compose_env(folder: Path, *arguments: str) -> str:
    done = started(folder, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def add_cluster(folder: Path, name: str = "dgx") -> Path:
    """The file of a cluster, which `compose-env` only looks for."""
    file = folder / "include" / "clusters" / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("")
    return file


def written(folder: Path) -> dict[str, str]:
    """The variables of `.env`, without their prefix."""
    lines = [line for line in (folder / ".env").read_text().splitlines() if line and not line.startswith("#")]
    return {name.removeprefix("PRODUCTION_"): value for name, value in (line.split("=", 1) for line in lines)}


def test_the_env_file_has_what_the_compose_file_asks_for(tmp_path: Path) -> None:
    add_cluster(tmp_path)
    compose_env(tmp_path, "--cluster", "dgx")
    asked = set(re.findall(r"\$\{PRODUCTION_(\w+)", COMPOSE_FILE.read_text()))
    assert set(written(tmp_path)) == asked
    assert written(tmp_path)["CLUSTER"] == "dgx"
    assert all(written(tmp_path).values())


def test_the_env_file_is_private_and_written_once(tmp_path: Path) -> None:
    told = compose_env(tmp_path)
    assert stat.S_IMODE((tmp_path / ".env").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / ".scaleout" / "ssh" / "connections.json").stat().st_mode) == 0o600
    before = (tmp_path / ".env").read_bytes()
    again = compose_env(tmp_path)
    assert "stays as it is" in again
    assert (tmp_path / ".env").read_bytes() == before
    assert not [name for name in SECRETS if written(tmp_path)[name] in told + again]


def test_a_cluster_that_there_is_not_is_refused_and_nothing_written(tmp_path: Path) -> None:
    file = add_cluster(tmp_path)
    done = started(tmp_path, "--cluster", "dgy")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert f"there is no {file.with_name('dgy.yaml')}" in done.stderr and "there are: dgx" in done.stderr
    assert not (tmp_path / ".env").exists()


def test_another_cluster_than_the_one_that_was_written_is_told(tmp_path: Path) -> None:
    add_cluster(tmp_path)
    add_cluster(tmp_path, "second")
    compose_env(tmp_path, "--cluster", "dgx")
    compose_env(tmp_path, "--cluster", "dgx")
    done = started(tmp_path, "--cluster", "second")
    assert done.returncode == 2 and "its PRODUCTION_CLUSTER is 'dgx': write second there instead" in done.stderr
    assert written(tmp_path)["CLUSTER"] == "dgx"


def test_a_configuration_that_the_containers_may_not_read_is_told(tmp_path: Path) -> None:
    """Those of root have another user's id, everybody else's one's own."""
    file = add_cluster(tmp_path)
    root = os.getuid() == 0
    for path, mode in ((file, 0o600), (file.parent, 0o700)):
        usual = stat.S_IMODE(path.stat().st_mode)
        path.chmod(mode if root else 0)
        if root:
            os.chown(path, 1234, 1234)
        done = started(tmp_path, "--cluster", "dgx")
        reader = 50000 if root else os.getuid()
        assert done.returncode == 2 and f"{path} cannot be read by the containers' user id {reader}" in done.stderr
        path.chmod(usual)
    compose_env(tmp_path, "--cluster", "dgx")


@pytest.mark.parametrize("password", ["plain", 'a"b', r"a\bc", "100%s", "'; exit 1; '"])
def test_any_password_gets_into_the_file_that_airflow_reads(
    compose: dict[str, Any], tmp_path: Path, password: str
) -> None:
    server = compose["services"]["api-server"]
    (script,) = server["command"]
    script = script.replace("$$", "$").replace("exec airflow api-server", "exit 0")
    file = tmp_path / "passwords.json"
    variables = {"ADMIN_PASSWORD": password, "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(file)}
    subprocess.run([*server["entrypoint"], script], env={**os.environ, **variables}, check=True)
    assert json.loads(file.read_text()) == {"admin": password}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_no_two_env_files_share_a_secret(tmp_path: Path) -> None:
    values = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        compose_env(tmp_path / name)
        values += [written(tmp_path / name)[secret] for secret in SECRETS]
    assert len(set(values)) == 2 * len(SECRETS)


def test_a_missing_secret_is_refused_with_a_sentence() -> None:
    uses = re.findall(r"\$\{PRODUCTION_(\w+)([^}]*)\}", COMPOSE_FILE.read_text())
    said = [name for name, rest in uses if rest.startswith(":?") and ".env" in rest]
    assert not SECRETS - set(said)
    assert not [name for name, rest in uses if name in SECRETS and not rest.startswith(":?")]


def test_only_the_ui_is_published_and_on_loopback(compose: dict[str, Any]) -> None:
    published = {name: service["ports"] for name, service in compose["services"].items() if "ports" in service}
    assert list(published) == ["api-server"]
    assert published["api-server"] == ["${PRODUCTION_UI_ADDRESS:-127.0.0.1}:${PRODUCTION_UI_PORT:-8080}:8080"]


def test_its_airflow_is_set_like_the_laptops(compose: dict[str, Any], tmp_path: Path) -> None:
    home = AirflowHome(tmp_path / "airflow")
    home.make()
    home.configure(8080, "")
    laptop = configparser.ConfigParser(interpolation=None)
    laptop.read(home.folder / "airflow.cfg")
    wanted = {f"AIRFLOW__{s.upper()}__{k.upper()}": v for s in laptop.sections() for k, v in laptop[s].items()}
    given = compose["services"]["scheduler"]["environment"]
    own_address = {f"AIRFLOW__API__{name}" for name in ("HOST", "PORT", "WORKERS")}
    assert not set(wanted) - own_address - set(given)
    same = ("CORE__EXECUTOR", "CORE__PARALLELISM", "CORE__AUTH_MANAGER", "CORE__LOAD_EXAMPLES", "SECRETS__BACKEND")
    same += ("CORE__SIMPLE_AUTH_MANAGER_USERS", "CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS")
    assert {name: given[f"AIRFLOW__{name}"] for name in same} == {name: wanted[f"AIRFLOW__{name}"] for name in same}
