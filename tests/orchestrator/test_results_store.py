"""The folder of a sweep: every file in it is whole, whoever dies while writing."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from trials import cluster, created, environment, run_trial, sweep_of

from scaleout.errors import ConfigError, ScaleoutError
from scaleout.results.store import SweepStore, write_text


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path))
    return tmp_path


def test_a_plan_comes_back_from_its_folder() -> None:
    store = SweepStore("a/b")
    store.create(sweep_of({}, run_id="a/b"))
    assert store.sweep() == sweep_of({}, run_id="a/b")
    assert store.folder.parent.name == "results"


def test_changes_of_state_are_kept_and_leave_the_rest() -> None:
    store, sweep = created({})
    store.update(stopped="in launch")
    assert store.sweep() == sweep.model_copy(update={"stopped": "in launch"})


def test_without_a_plan_the_sentence_says_which_task_failed() -> None:
    with pytest.raises(ConfigError, match=r"sweep\.json does not exist: the task `plan` of this run did not succeed"):
        SweepStore("never").sweep()


def test_results_that_cannot_be_written_are_a_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "results").write_text("a file stands in the way")
    with pytest.raises(
        ScaleoutError, match=r"results cannot be written there: .*; name another place in SCALEOUT_HOME"
    ):
        SweepStore("nightly").create(sweep_of({}))


def test_a_document_that_is_not_there_is_none() -> None:
    store, _ = created({})
    assert store.read("ssd-n1-cold-r1-t1", "row.json") is None


def test_a_document_with_nan_is_not_written() -> None:
    store, _ = created({})
    store.write({"rate": 1.0}, "x.json")
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.write({"rate": float("nan")}, "x.json")
    assert store.read("x.json") == {"rate": 1.0}


def test_each_launch_is_a_try_of_its_own() -> None:
    store, sweep = created({}, cluster(1, processes_per_node=1))
    (trial,) = sweep.trials
    assert store.last_try(trial.key) is None
    assert [store.next_try(trial.key), store.next_try(trial.key)] == ["ssd-n1-cold-r1-t1"] * 2
    assert [run_trial(store, trial) for _ in range(3)] == [f"ssd-n1-cold-r1-t{k}" for k in (1, 2, 3)]
    assert store.last_try(trial.key) == "ssd-n1-cold-r1-t3"


def test_a_reader_sees_the_old_text_or_the_whole_new_one(home: Path) -> None:
    path, texts, over = home / "text", ["a" * 300_000, "b" * 200_000], threading.Event()
    write_text(path, texts[0])
    seen: set[str] = set()

    def read() -> None:
        while not over.is_set():
            seen.add(path.read_text())

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(30):
        write_text(path, texts[turn % 2])
    over.set()
    reader.join()
    assert seen <= set(texts)


def test_a_writer_that_is_killed_leaves_a_whole_file(home: Path) -> None:
    path = home / "text"
    program = (
        "import sys; from pathlib import Path; from scaleout.results.store import write_text\n"
        "while True: [write_text(Path(sys.argv[1]), c * 500_000) or print('go', flush=True) for c in 'ab']"
    )
    for _ in range(3):
        writer = subprocess.Popen(
            [sys.executable, "-c", program, str(path)], env=environment(), stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        with writer.stdout:
            writer.stdout.readline()
            time.sleep(0.05)
            writer.send_signal(signal.SIGKILL)
            writer.wait()
        text = path.read_text()
        assert len(text) == 500_000 and len(set(text)) == 1
