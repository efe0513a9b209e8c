"""Every mistake that a user can make is one sentence before anything runs, through `airflow dags test`.

`pytest -rP` on this file prints the table of mistakes and sentences.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from world import CHECKOUT, World

QUICK: dict[str, Any] = {"preset": "quick", "length": {"steps": 2}, "window_steps": 1, "nodes": [1]}


def refused(world: World, form: dict[str, Any], sentence: str, **environment: str) -> str:
    """Runs the sweep; it must fail with the sentence and without a traceback, and must have launched nothing."""
    before = launches(world)
    status, output = world.run(form, **environment)
    print(f"| {sentence} |")
    assert status == 1, output[-3000:]
    assert sentence in output, output[-3000:]
    assert "Traceback" not in output
    assert launches(world) == before
    return output


def launches(world: World) -> list[Path]:
    return [launch for sweep in world.sweeps() for launch in sorted(sweep.glob("*/launch.json"))]


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


@pytest.fixture
def own_config(faults: World, tmp_path: Path) -> Path:
    """A configuration folder of the test's own."""
    folder = tmp_path / "config"
    shutil.copytree(faults.config_dir, folder)
    return folder


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


def with_local(config: Path, old: str, new: str) -> dict[str, str]:
    path = config / "clusters" / "local.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return {"SCALEOUT_CONFIG_DIR": str(config)}


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
        "has no torch, torchvision, psutil, nvidia-dali-cuda*: install requirements/node.lock there",
        **chosen,
    )
    chosen = with_local(own_config, "python: /usr/bin/python3 ", "python: /no/such/python3 ")
    refused(faults, QUICK, "/no/such/python3: No such file or directory", **chosen)


@pytest.fixture
def frames(scenes: Path, tmp_path: Path) -> Path:
    """A data set of the test's own, to be damaged."""
    folder = tmp_path / "cityscapes"
    shutil.copytree(scenes, folder)
    return folder


def truth_of(frames: Path, kind: str) -> Path:
    return sorted(frames.glob(f"gtFine/train/*/*_gtFine_{kind}"))[0]


def test_a_data_set_that_is_not_there(faults: World) -> None:
    refused(faults, {**QUICK, "cityscapes": "/no/such/folder"}, "node1: no data set folder /no/such/folder: mount it")


def test_a_data_set_without_images(faults: World, frames: Path) -> None:
    for image in frames.glob("leftImg8bit/*/*/*.png"):
        image.unlink()
    refused(faults, {**QUICK, "cityscapes": str(frames)}, "no frame of train has both a picture and ground truth")


def test_a_picture_that_is_none(faults: World, frames: Path) -> None:
    sorted(frames.glob("leftImg8bit/train/*/*.png"))[0].write_text("not a picture")
    refused(
        faults, {**QUICK, "cityscapes": str(frames)}, "not a PNG; replace it with the frame's picture, or remove it"
    )


def test_a_mask_of_another_size(faults: World, frames: Path) -> None:
    script = "import sys; from PIL import Image; Image.new('I;16', (64, 32)).save(sys.argv[1])"
    python = str(faults.cluster.node_python)
    subprocess.run([python, "-c", script, str(truth_of(frames, "instanceIds.png"))], check=True)
    refused(faults, {**QUICK, "cityscapes": str(frames)}, "64x32")


def test_an_unknown_label(faults: World, frames: Path) -> None:
    for mask in frames.glob("gtFine/train/*/*_instanceIds.png"):
        mask.unlink()
    polygons = truth_of(frames, "polygons.json")
    document = json.loads(polygons.read_text())
    document["objects"][0]["label"] = "hovercraft"
    polygons.write_text(json.dumps(document))
    refused(faults, {**QUICK, "cityscapes": str(frames)}, "unknown label 'hovercraft'")


def test_images_without_annotations(faults: World, frames: Path) -> None:
    shutil.rmtree(frames / "gtFine" / "train")
    refused(faults, {**QUICK, "cityscapes": str(frames)}, "no frame of train has both a picture and ground truth")


def test_an_empty_validation_split_is_said_and_does_no_harm(faults: World, frames: Path) -> None:
    shutil.rmtree(frames / "leftImg8bit" / "val")
    status, output = faults.run({**QUICK, "cityscapes": str(frames)})
    assert status == 0 and "val: no frames; validation has nothing to measure" in output, output[-3000:]


@pytest.fixture
def small_disk() -> Iterator[Any]:
    """Mounts a file system of a few megabytes, or a read-only one, over a folder until the test ends."""
    mounted: list[Path] = []

    def mount(folder: Path, options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "scaleout-test", str(folder)], check=True)
        mounted.append(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_results_folder_that_would_fill_up(faults: World, small_disk: Any) -> None:
    small_disk(faults.home / "results", "size=8m")
    refused(faults, QUICK, "200 MB are needed for results: free some, or name another place in SCALEOUT_HOME")


def test_a_remote_root_that_would_fill_up(faults: World, own_config: Path, small_disk: Any) -> None:
    small_disk(faults.cluster.folder / "node1" / "home" / "small", "size=8m")
    chosen = with_local(own_config, "remote_root: ~/scaleout ", "remote_root: ~/small/scaleout ")
    refused(faults, QUICK, "node1: ~/small/scaleout has 0.01 GB free and 1 GB is needed: free some", **chosen)


def test_a_home_on_a_read_only_file_system(faults: World, own_config: Path, small_disk: Any) -> None:
    small_disk(faults.cluster.folder / "node1" / "home" / "sealed", "size=8m,ro")
    chosen = with_local(own_config, "remote_root: ~/scaleout ", "remote_root: ~/sealed/scaleout ")
    refused(faults, QUICK, "the lock cannot be written: Read-only file system", **chosen)
    small_disk(faults.home / "results", "size=8m,ro")
    refused(faults, QUICK, "results cannot be written there: Read-only file system", **chosen)


def test_a_locale_that_is_not_utf_8(faults: World) -> None:
    status, output = faults.run(QUICK, LC_ALL="C", LANG="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert status == 0, output[-3000:]


def test_a_checkout_with_a_space_in_its_path(faults: World, tmp_path: Path) -> None:
    checkout = tmp_path / "my checkout"
    shutil.copytree(CHECKOUT, checkout, ignore=shutil.ignore_patterns(".scaleout", ".git", "__pycache__", ".whl"))
    home = checkout / ".scaleout"
    environment = {**os.environ, "SCALEOUT_VENVS": os.environ["SCALEOUT_VENVS"], "SCALEOUT_HOME": str(home)}
    environment.pop("SCALEOUT_CONFIG_DIR", None)
    subprocess.run(["make", "cluster-up"], cwd=checkout, env=environment, check=True, stdin=subprocess.DEVNULL)
    try:
        line = ". .scaleout/env.sh && scaleout plan -c '{}' && scaleout lock show"
        done = subprocess.run(["sh", "-c", line], cwd=checkout, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "4 trials" in done.stdout and "node2: free" in done.stdout
    finally:
        subprocess.run(["make", "cluster-down"], cwd=checkout, env=environment, check=True, stdin=subprocess.DEVNULL)
