"""Every mistake that a user can make is one sentence before anything runs, through `airflow dags test`.

`pytest -rP` on this file and on `test_bad_data.py` prints the table of mistakes and sentences.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from refusals import QUICK, refused, with_local
from world import World


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        ({"workloads": ["sdd"]}, "no workload named 'sdd'; did you mean 'ssd'?"),
        ({"nodes": [3]}, "3 nodes are asked for and the cluster local has 2"),
        ({"nodes": [0]}, "nodes.0: input should be greater than 0 (found 0)"),
        ({"nodes": [-1]}, "nodes.0: input should be greater than 0 (found -1)"),
        ({"nodes": [1, 1]}, "nodes: 1 is asked for more than once; `rounds` repeats trials"),
        ({"preset": "quick", "length": {"steps": 1}, "window_steps": 2}, "1 steps are too few for one window of 2"),
        (
            {"preset": "quick", "length": {"epochs": 20}},
            "and the budget is 0.5 h: ask for fewer nodes, rounds or steps",
        ),
    ],
)
def test_a_form_that_cannot_be_run(faults: World, form: dict[str, Any], sentence: str) -> None:
    refused(faults, form, sentence)
    planned = faults.command("plan", "-c", json.dumps(form))
    assert planned.returncode == 2 and sentence in planned.stderr and "Traceback" not in planned.stderr


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "no cluster named 'mine' in"),
        ("", "mine.yaml:1: is empty"),
        ("nodes: [a: b: c]\n", "mine.yaml:1: not YAML"),
        (
            "name: mine\nprocess_per_node: 1\n",
            "mine.yaml:2: unknown key 'process_per_node'; did you mean 'processes_per_node'?",
        ),
        (
            "name: mine\nnodes:\n- {name: n1, connection: a}\n- {name: n1, connection: b}\n",
            "the name 'n1' stands more than once",
        ),
    ],
)
def test_a_cluster_file_that_is_wrong(faults: World, own_config: Path, content: str | None, sentence: str) -> None:
    rest = "cityscapes: /x\nprepared: /y\ndevice: cpu\nprocesses_per_node: 1\narray: {kind: none}\n"
    if content is not None:
        whole = content + rest if "nodes:\n" in content else content
        (own_config / "clusters" / "mine.yaml").write_text(whole)
    refused(faults, {}, sentence, SCALEOUT_CONFIG_DIR=str(own_config), SCALEOUT_CLUSTER="mine")


def test_a_node_without_a_connection(faults: World, own_config: Path) -> None:
    chosen = with_local(own_config, "connection: scaleout_node1}", "connection: scaleout_nowhere}")
    refused(faults, QUICK, "node1: Airflow has no connection 'scaleout_nowhere': add it (type ssh)", **chosen)


@pytest.fixture
def connections(faults: World) -> Iterator[dict[str, Any]]:
    """The connections' file, to be changed and written; put back afterwards."""
    path = faults.cluster.folder / "connections.json"
    kept = path.read_text()
    yield json.loads(kept)
    path.write_text(kept)


def write(world: World, connections: dict[str, Any]) -> None:
    (world.cluster.folder / "connections.json").write_text(json.dumps(connections))


def test_a_node_that_does_not_answer(faults: World, connections: dict[str, Any]) -> None:
    connections["scaleout_node1"]["port"] = 1
    write(faults, connections)
    refused(faults, QUICK, "node1: cannot connect to 127.0.0.1:1")


def test_a_wrong_host_key(faults: World, connections: dict[str, Any]) -> None:
    connections["scaleout_node1"]["extra"]["host_key"] = connections["scaleout_node2"]["extra"]["host_key"]
    write(faults, connections)
    refused(faults, QUICK, "is not its connection's host_key: find out why before you change it")


def test_a_refused_login(faults: World, connections: dict[str, Any], tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "other")], check=True)
    connections["scaleout_node1"]["extra"]["key_file"] = str(tmp_path / "other")
    write(faults, connections)
    refused(faults, QUICK, "refused the login of")


def test_a_login_shell_that_greets_and_takes_its_time(faults: World) -> None:
    startup = faults.cluster.folder / "node1" / "home" / ".bashrc"
    startup.write_text("echo 'Welcome to node1'; echo 'Maintenance on Sunday' >&2; sleep 0.3\n")
    try:
        status, output = faults.run(QUICK)
    finally:
        startup.unlink()
    assert status == 0, output[-3000:]
    assert faults.results()["trials"][0]["status"] == "succeeded"


def test_no_training_environment_on_a_node(faults: World, own_config: Path) -> None:
    chosen = with_local(own_config, "python: python3 ", "python: /usr/bin/python3 ")
    refused(
        faults,
        QUICK,
        "has no torch, torchvision, cityscapesscripts, deflate, msgspec, psutil, pycocotools, zlib-ng, nvidia-dali-cuda*: "
        "install requirements/node.lock there",
        **chosen,
    )
    chosen = with_local(own_config, "python: /usr/bin/python3 ", "python: /no/such/python3 ")
    refused(faults, QUICK, "/no/such/python3: No such file or directory", **chosen)
