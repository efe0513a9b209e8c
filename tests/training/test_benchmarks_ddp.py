"""The benchmark of DDP's settings: what it splits a trace into, and that it runs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def written(folder, *events):
    file = folder / "trace.json"
    names = ("cat", "name", "ts", "dur")
    file.write_text(
        json.dumps({"traceEvents": [{"ph": "X"} | dict(zip(names, event, strict=True)) for event in events]})
    )
    return file


@pytest.fixture
def split(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return __import__("split").split


def parts_ms(found):
    return [pytest.approx(1e3 * part) for part in (found.compute, found.hidden, found.exposed, found.neither)]


def test_a_trace_of_a_gpu_is_split_by_what_ran_at_once(split, tmp_path):
    file = written(
        tmp_path,
        ("cpu_op", "aten::conv2d", 0, 90000),
        ("kernel", "conv", 1000, 4000),
        ("kernel", "conv beside it", 2000, 4000),
        ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 5000, 4000),
        ("gpu_memcpy", "Memcpy DtoD", 10000, 1000),
    )
    assert parts_ms(split(file, 2)) == [5.0 / 2 + 1.0 / 2, 1.0 / 2, 3.0 / 2, 1.0 / 2]


def test_a_trace_of_a_cpu_likewise(split, tmp_path):
    file = written(
        tmp_path,
        ("cpu_op", "aten::conv2d", 0, 4000),
        ("cpu_op", "c10d::allreduce_", 4000, 100),
        ("user_annotation", "gloo:all_reduce", 3000, 3000),
    )
    assert parts_ms(split(file, 1)) == [4.0, 1.0, 2.0, 0.0]
    with pytest.raises(ValueError, match="nothing was computed in it"):
        split(written(tmp_path, ("user_annotation", "gloo:all_reduce", 0, 1)), 1)


def test_it_runs_on_two_processes(tmp_path):
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "ddp_steps.py", "--device", "cpu", "--workload", "ssd", "--batch", "2",
         "--flags=--backbone resnet18", "--setting", "static=--ddp-static-graph", "--repeats", "1",
         "--seconds", "0.1", "--traces", tmp_path / "traces"],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines if line and line[0] in ("bare", "static")] == ["bare", "static"] * 2
    talk = {line[0]: float(line[2]) + float(line[3]) for line in lines[-2:]}
    assert talk["bare"] == 0 < talk["static"]
    assert (tmp_path / "traces" / "ssd-static.json").exists()
