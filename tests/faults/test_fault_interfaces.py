"""A whole sweep on hosts with a docker0 that comes first: its ranks are told of the interface that leads to their peers."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from bed import Bed
from machines import DIES_WITH_US, in_network

from scaleout import settings

sys.path.append(str(Path(__file__).parents[1] / "e2e"))

from world import CHECKOUT, python_with_stand_in

RUN_LIMIT_S = 200


def test_gloo_and_nccl_are_told_of_the_network_between_the_hosts(bed: Bed, tmp_path: Path) -> None:
    hosts = bed.hosts[:2]
    home, config_dir = tmp_path / "home", tmp_path / "include"
    write_config(config_dir, bed, python_with_stand_in(tmp_path / "bin"))
    share_scenes(bed, tmp_path / "nas")
    environment = {
        **os.environ,
        "SCALEOUT_HOME": str(home),
        "SCALEOUT_VENVS": str(settings.node_python().parents[2]),
        "SCALEOUT_CONFIG_DIR": str(config_dir),
        "SCALEOUT_CLUSTER": "bed",
        "SCALEOUT_CONNECTIONS_FILE": str(connections(bed, tmp_path)),
    }
    base = Path(sys.base_prefix) / "bin" / "python3.11"
    subprocess.run([str(base), str(CHECKOUT / "tools" / "setup.py")], env=environment, check=True)
    form = json.dumps({"preset": "quick", "nodes": [len(hosts)], "length": {"steps": 2}, "window_steps": 1})
    line = f". {shlex.quote(str(home / 'env.sh'))} && exec airflow dags test scaling_benchmark -c {shlex.quote(form)}"
    done = subprocess.run(
        [*DIES_WITH_US, *in_network(bed.switch.pid, ["sh", "-c", line])],
        env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    (launch,) = (home / "results" / "latest").glob("*/launch.json")
    jobs: dict[str, Any] = json.loads(launch.read_text())["jobs"]
    told = {name: {k: v for k, v in job["environment"].items() if "IFNAME" in k} for name, job in jobs.items()}
    expected = {"GLOO_SOCKET_IFNAME": "eth0", "NCCL_SOCKET_IFNAME": "=eth0"}
    assert told == {host.name: expected for host in hosts}


def write_config(folder: Path, bed: Bed, python: Path) -> None:
    for kind in ("workloads", "presets", "clusters"):
        (folder / kind).mkdir(parents=True)
    for file in ("workloads/ssd.yaml", "presets/quick.yaml"):
        (folder / file).write_text((CHECKOUT / "include" / file).read_text())
    cluster = {
        "name": "bed",
        "nodes": [{"name": host.name, "connection": host.name} for host in bed.hosts],
        "python": str(python),
        "cityscapes": "~/nas/cityscapes",
        "prepared": "~/nas/prepared",
        "device": "cpu",
        "processes_per_node": 1,
        "array": {"kind": "none"},
    }
    (folder / "clusters" / "bed.yaml").write_text(json.dumps(cluster))


def share_scenes(bed: Bed, nas: Path) -> None:
    """A small data set on a folder that all hosts see as `~/nas`."""
    program = CHECKOUT / "training" / "data" / "generate.py"
    counts = ["--train", "4", "--val", "2", "--seed", "7"]
    subprocess.run([str(settings.node_python()), str(program), "--out", str(nas / "cityscapes"), *counts], check=True)
    for host in bed.hosts:
        (host.home / "nas").symlink_to(nas)


def connections(bed: Bed, folder: Path) -> Path:
    """The Airflow connections of all hosts."""
    targets = [host.target for host in bed.hosts]
    document = {
        target.name: {
            "conn_type": "ssh",
            "host": target.host,
            "login": target.user,
            "extra": {"key_file": target.key_file, "host_key": target.host_key},
        }
        for target in targets
    }
    path = folder / "connections.json"
    path.write_text(json.dumps(document))
    return path
