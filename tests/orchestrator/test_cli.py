"""The command line: what a user can mend is one sentence and an exit status, and never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from trials import CHECKOUT, config_folder, created, environment, run_trial

from scaleout import settings
from scaleout.cli import demo
from scaleout.config import files
from scaleout.results.compile import compile_results

MANY = "1" + 400 * "0"


def scaleout(home: Path, *arguments: str | bytes, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "scaleout.cli", *arguments]
    own = {"SCALEOUT_HOME": str(home), "SCALEOUT_VENVS": str(settings.node_python().parents[2])}
    own = environment(**own | variables)
    return subprocess.run(command, cwd=home, env=own, capture_output=True, text=True, timeout=60)


def assert_refused(done: subprocess.CompletedProcess[str], status: int, sentence: str) -> None:
    assert (done.returncode, done.stdout) == (status, ""), done.stderr
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("scaleout: ") and sentence in done.stderr, (
        done.stderr
    )


@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["plan", "-c", f'{{"batch_per_gpu": {MANY}}}'], 2, "trigger form: batch_per_gpu: is too large a number"),
        (["plan", "-c", f'{{"dataset_factor": {MANY}}}'], 2, "trigger form: dataset_factor: is too large a number"),
        (["one-host", "--device", "cpu", "--env", "1A=3"], 2, "one-host: environment.1A"),
        (["one-host", "--device", "cpu", "--env", b"A=a\xff"], 2, "one-host: environment.A: is not UTF-8 text"),
        (
            ["one-host", "--device", "cpu", "--counts", "1", "--workloads", "ssd", "--python", "/bin/true"],
            1,
            "/bin/true: ran preflight.py and gave no answer: name the training environment's with --python",
        ),
        (["show", "gone"], 2, "results/gone/results.json: no results there; run a sweep first"),
    ],
)
def test_bad_input_gets_a_sentence(tmp_path: Path, arguments: list[str | bytes], status: int, sentence: str) -> None:
    assert_refused(scaleout(tmp_path, *arguments), status, sentence)


@pytest.mark.parametrize("command", [["stack", "up"], ["cluster", "up"], ["one-host", "--device", "cpu"]])
def test_a_home_that_cannot_be_made_gets_a_sentence(tmp_path: Path, command: list[str]) -> None:
    assert_refused(scaleout(tmp_path, *command, SCALEOUT_HOME="/proc/nowhere"), 1, "/proc/nowhere")


def test_a_file_that_is_nested_too_deep_gets_a_sentence(tmp_path: Path) -> None:
    folder = config_folder(tmp_path / "config")
    (folder / "clusters/local.yaml").write_text("[" * 5000)
    assert_refused(scaleout(tmp_path, "plan", SCALEOUT_CONFIG_DIR=str(folder)), 2, "local.yaml: is nested too deep")


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"trials": [{"a": 1}], "missing": []}'])
def test_results_that_cannot_be_read_get_a_sentence(tmp_path: Path, content: str) -> None:
    file = tmp_path / "results" / "old" / "results.json"
    file.parent.mkdir(parents=True)
    file.write_text(content)
    assert_refused(scaleout(tmp_path, "show", "old"), 2, f"{file}: damaged, or of another version of scaleout")


def test_a_sweep_is_shown_by_the_run_id_that_the_ui_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path))
    run_id = "manual__2026-12-03T08:00:00+00:00"
    store, sweep = created({}, run_id=run_id)
    for trial in sweep.trials:
        run_trial(store, trial)
    compile_results(store)
    for name in (run_id, store.folder.name, "latest", str(store.folder)):
        done = scaleout(tmp_path, "show", name)
        assert done.returncode == 0 and str(store.folder / "report.html") in done.stdout, done.stderr


def test_a_demo_is_of_the_local_cluster_whichever_one_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path))
    monkeypatch.setenv("SCALEOUT_CLUSTER", "dgx")
    monkeypatch.setenv("SCALEOUT_CONNECTIONS_FILE", "/etc/connections.json")
    monkeypatch.setenv("AIRFLOW__SECRETS__BACKEND_KWARGS", '{"connections_file_path": "/etc/connections.json"}')
    told = demo.environment()
    own = str(tmp_path / "cluster" / "connections.json")
    assert (told["SCALEOUT_CLUSTER"], told["SCALEOUT_CONNECTIONS_FILE"]) == ("local", own)
    assert json.loads(told["AIRFLOW__SECRETS__BACKEND_KWARGS"]) == {"connections_file_path": own}
    assert files.load_cluster(told["SCALEOUT_CLUSTER"]).nodes[0].connection == "scaleout_node1"
    assert told.items() >= {"PATH": os.environ["PATH"], "AIRFLOW__CORE__DAGS_FOLDER": str(CHECKOUT / "dags")}.items()
