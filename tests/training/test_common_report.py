"""What a run tells while it goes."""

import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from training.common.errors import UserError
from training.common.report import Report
from training.wire.events import Window

PROGRAM = """
from training.common.report import Report
from training.wire.events import Window
for rank in (0, 1):
    report = Report(rank, 2)
    report.say("hello from %d" % rank)
    report.begin(3)
    for _ in range(3):
        report.step()
    report.window(Window(0, 0, 0, 3, 6, 1.5, 0.5, None, 2.5, 0.1, 1, None), [2.0, 2.5, 3.0], 0)
    report.end()
"""


def window(first, steps, losses):
    return Window(0, 1, first, steps, 2 * steps, 1.0, 0.1, None, sum(losses) / steps, 0.1, 1, None)


def run(**streams):
    root = Path(__file__).resolve().parents[2]
    return subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, timeout=60, check=True, **streams)


def test_plain_lines_of_one_rank_where_there_is_no_terminal():
    said = run(capture_output=True, text=True).stdout.splitlines()
    assert said == [
        "hello from 0",
        "epoch 0 steps 0-2: 8.0 images/s over all ranks, waited 0.50 of 1.50 s for data, loss 2.500, lr 0.1",
    ]


def test_a_gpu_waits_only_where_it_is_idle_though_its_host_waits_for_it():
    on_gpu = Window(0, 1, 0, 2, 4, 1.0, 0.9, 0.02, 1.0, 0.1, 1, 1)
    assert (on_gpu.waiting_s, window(0, 1, [1.0]).waiting_s) == (0.02, 0.1)


def test_a_bar_on_a_terminal():
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    run(stdout=theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 4096):
            shown += part
    except OSError:  # how Linux tells that the other side is closed
        pass
    os.close(ours)
    assert b"3/3" in shown and b"step/s" in shown and b"8.0 images/s" in shown and b"hello from 1" not in shown


def test_the_json_stream_has_a_loss_for_every_nth_step(tmp_path):
    path = tmp_path / "summary.json"
    with Report(0, 1, path, log_interval=4) as report:
        report.log("PARAMETER", {"epochs": 3})
        report.window(window(6, 3, [1.0, 2.0, 3.0]), [1.0, 2.0, 3.0], pass_step=2)
        report.window(window(9, 4, [4.0, 5.0, 6.0, 7.0]), [4.0, 5.0, 6.0, 7.0], pass_step=5)
    lines = path.read_text().splitlines()
    assert all(line.startswith("DLLL {") for line in lines)
    found = [json.loads(line.removeprefix("DLLL ")) for line in lines]
    assert [(line["step"], line["data"]) for line in found] == [
        ("PARAMETER", {"epochs": 3}),
        ([1, 4], {"loss": 3.0}),
        ([1, 8], {"loss": 7.0}),
    ]
    assert all(line["type"] == "LOG" and float(line["timestamp"]) > 1e9 for line in found)


def test_only_rank_0_writes_and_a_path_that_cannot_be_is_refused(tmp_path):
    with Report(1, 2, tmp_path / "none.json") as report:
        report.log([], {"a": 1})
    assert not (tmp_path / "none.json").exists()
    with pytest.raises(UserError, match=r"--json-summary .*: No such file or directory"):
        Report(0, 1, tmp_path / "no" / "folder.json")
