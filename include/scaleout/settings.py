"""The environment variables, read in one place. Standard library only: `tools/setup.py` imports it before anything is installed."""

from __future__ import annotations

import json
import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]


def home() -> Path:
    """`$SCALEOUT_HOME`: results, the local cluster and its data. Default: `.scaleout` in the checkout."""
    return Path(os.environ.get("SCALEOUT_HOME") or CHECKOUT / ".scaleout").resolve()


def config_dir() -> Path:
    """`$SCALEOUT_CONFIG_DIR`: holds `clusters/`, `workloads/` and `presets/`. Default: `include` in the checkout."""
    return Path(os.environ.get("SCALEOUT_CONFIG_DIR") or CHECKOUT / "include").resolve()


def cluster_name() -> str:
    """`$SCALEOUT_CLUSTER`: the cluster whose DAG is parsed. Default: the local one."""
    return os.environ.get("SCALEOUT_CLUSTER") or "local"


def results_dir() -> Path:
    return home() / "results"


def training_dir() -> Path:
    """The folder that is copied to the nodes as a release."""
    return CHECKOUT / "training"


def node_python() -> Path:
    """The training environment's interpreter on this machine, as `make setup` made it."""
    venvs = Path(os.environ.get("SCALEOUT_VENVS") or home() / "venv")
    return venvs / "node" / "bin" / "python"


def local_connections_file() -> Path:
    """What `scaleout cluster up` writes."""
    return home() / "cluster" / "connections.json"


def connections_file() -> Path:
    """`$SCALEOUT_CONNECTIONS_FILE`: Airflow's connections, read through a secrets backend. Default: the local cluster's."""
    return Path(os.environ.get("SCALEOUT_CONNECTIONS_FILE") or local_connections_file()).resolve()


def airflow_settings(connections: Path | None = None) -> dict[str, str]:
    """What every Airflow of this checkout is told, as environment variables: `dags test`'s and the stack's.

    `connections`: another file than `connections_file()`.
    """
    return {
        "AIRFLOW__CORE__DAGS_FOLDER": str(CHECKOUT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(CHECKOUT / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps(
            {"connections_file_path": str(connections or connections_file())}
        ),
    }
