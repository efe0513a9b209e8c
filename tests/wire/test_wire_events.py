"""The event log of a rank: what was written is read back; what was cut off is left out; what is damaged is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from training.wire.events import (
    KINDS,
    Body,
    CheckpointSaved,
    ClockStart,
    ClockStop,
    Dataset,
    EpochEnd,
    Evaluation,
    EventLog,
    FirstBatch,
    RunEnd,
    RunStart,
    Synthetic,
    Window,
    read_events,
)
from training.wire.schema import WireError

RUN_START = RunStart(
    program="ssd",
    argv=["--mode", "training"],
    run_id="r",
    node="node1",
    hostname="vm",
    boot_id=None,
    pid=1,
    node_rank=0,
    local_rank=0,
    world_size=1,
    device="cpu",
    device_name="a CPU",
    backend=None,
    ddp="torch",
    precision="fp32",
    loader="dali",
    seed=1,
    model="ssd300",
    classes=["person"],
    parameters=1,
    batch_per_gpu=2,
    global_batch=2,
    num_workers=1,
    learning_rate=0.1,
    length={"steps": 2},
    dataset=Dataset("/data", 8, 800, 80, 100.0, None, 8, "contiguous"),
    affinity=[0],
    network_interface=None,
    versions={"python": "3.11"},
)
BODIES: list[Body] = [
    RUN_START,
    Synthetic(1, 0.5, 2, 4, 1.0),
    ClockStart(None),
    FirstBatch(0.25),
    Window(0, 0, 0, 2, 4, 1.5, 0.5, None, 3.0, 0.1, 1000, None),
    EpochEnd(0, 0, True, 4, 0, 1.5, 512),
    CheckpointSaved(1, "/out/epoch_1.pt", 1000, 0.5),
    ClockStop(2, 4, 1.5, 4, 400, 400, 0, 512),
    Evaluation(0, 500, 12_000, 9.5, {"AP": 0.25, "AP_small": None}, {"person": 0.5, "train": None}),
    Evaluation(1, 500, None, 9.5, {"mIoU": 0.25, "pixel_accuracy": 0.5, "loss": None}, {"road": 0.5, "train": None}),
    RunEnd("failed", "it was dark – ü"),
]
LINE = {"v": 1, "kind": "first_batch", "rank": 0, "t_wall_s": 1.0, "t_mono_s": 2.0, "seconds": 0.25}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "rank3" / "events.jsonl"
    with EventLog(path, rank=3) as events:
        for body in BODIES:
            events.write(body)
    return path


def test_events_come_back_in_order_with_rank_and_stamps(log: Path) -> None:
    events = list(read_events(log))
    assert [event.body for event in events] == BODIES
    assert {event.rank for event in events} == {3}
    assert [e.t_mono_s for e in events] == sorted(e.t_mono_s for e in events)
    assert all(abs(event.t_wall_s - time.time()) < 600 for event in events)


def test_every_kind_of_event_is_tried_here() -> None:
    assert {body.kind for body in BODIES} == set(KINDS)


def test_each_line_says_the_wires_version_and_its_kind(log: Path) -> None:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["v"], line["kind"]) for line in lines] == [(1, body.kind) for body in BODIES]


def test_a_second_writer_appends(log: Path) -> None:
    with EventLog(log, rank=3) as events:
        events.write(FirstBatch(1.0))
    assert [event.body for event in read_events(log)] == [*BODIES, FirstBatch(1.0)]


def test_a_last_line_that_was_cut_off_anywhere_is_left_out(log: Path) -> None:
    whole = log.read_bytes()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1
    for cut in {last, last + 1, (last + len(whole)) // 2, len(whole) - 2, len(whole) - 1}:
        log.write_bytes(whole[:cut])
        assert [event.body for event in read_events(log)] == BODIES[:-1]


def test_an_empty_log_has_no_events(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.touch()
    assert list(read_events(path)) == []


def test_what_a_killed_rank_had_written_is_there(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    program = (
        "import os, signal, sys; from pathlib import Path; from training.wire.events import EventLog, FirstBatch\n"
        "log = EventLog(Path(sys.argv[1]), 0); log.write(FirstBatch(1.0)); log.write(FirstBatch(2.0))\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run([sys.executable, "-c", program, str(path)], env={**os.environ, "PYTHONPATH": root})
    assert done.returncode == -signal.SIGKILL
    assert [event.body for event in read_events(path)] == [FirstBatch(1.0), FirstBatch(2.0)]


def _without(*keys: str) -> dict[str, Any]:
    return {key: value for key, value in LINE.items() if key not in keys}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("", "not an event"),
        ("{", "not an event"),
        ("7", "not an event"),
        ("null", "not an event"),
        (json.dumps([LINE]), "not an event"),
        *[(json.dumps(_without(key)), key) for key in LINE],
        (json.dumps(LINE | {"v": 2}), "written by version 2 of the wire; this reader knows 1"),
        (json.dumps(LINE | {"kind": "coffee"}), "unknown kind of event 'coffee'"),
        (json.dumps(LINE | {"kind": []}), "unknown kind of event"),
        (json.dumps(LINE | {"extra": 1}), "FirstBatch has no key 'extra'"),
        (json.dumps(LINE | {"seconds": "fast"}), "seconds: expected float, found str 'fast'"),
        (json.dumps(LINE | {"seconds": float("nan")}), "seconds"),
        (json.dumps(LINE | {"rank": "0"}), "rank: expected int, found str '0'"),
        (json.dumps(LINE | {"t_wall_s": None}), "t_wall_s: expected float, found NoneType None"),
        (json.dumps(LINE | {"t_mono_s": "x"}), "t_mono_s: expected float, found str 'x'"),
    ],
)
def test_a_damaged_line_is_refused_with_file_and_line(line: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(json.dumps(LINE) + "\n" + line + "\n")
    with pytest.raises(WireError) as refused:
        list(read_events(path))
    assert f"{path}:2:" in str(refused.value)
    assert complaint in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bytes_that_are_no_text_are_a_damaged_line(log: Path) -> None:
    log.write_bytes(log.read_bytes() + b"\xff\xfe\x00\n")
    with pytest.raises(WireError, match=rf"{log}:{len(BODIES) + 1}: not an event"):
        list(read_events(log))


def test_a_loss_that_is_not_a_number_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path, 0) as events, pytest.raises(WireError, match=r"Window\.loss: nan is not a measurement"):
        events.write(Window(0, 0, 0, 2, 4, 1.5, 0.5, None, float("nan"), 0.1, 1000, None))
    assert path.read_text() == ""
