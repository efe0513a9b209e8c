"""`scaleout demo`: the local cluster, a small data set, and the sweep itself through `airflow dags test`, nothing else."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from scaleout import settings
from scaleout.config import files
from scaleout.errors import ConfigError, ScaleoutError
from scaleout.local.cluster import local_cluster

Say = Callable[[str], None]

LOCAL = "local"
SOURCE_VARIABLE = "CITYSCAPES"
TRAIN_FRAMES, VAL_FRAMES, SEED = 24, 8, 1
NARROWEST = 120

# What `airflow dags test` prints of our own operators, and the start of each task.
_OURS = re.compile(r"^\S+ \[(?P<level>\w+) *\] (?P<text>.*?)\s*\[airflow\.task\.operators\.scaleout\S*\]")
_TASK = re.compile(r"\[DAG TEST\] starting task_id=(?P<task>\S+)")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def run(say: Say) -> int:
    """Gives the exit status of `airflow dags test`. Raises ScaleoutError."""
    started = time.monotonic()
    cluster = local_cluster(files.load_cluster(LOCAL))
    cluster.up(say)
    form: dict[str, object] = {"preset": "quick"}
    source = os.environ.get(SOURCE_VARIABLE)
    if source:
        form["cityscapes"] = str(_existing(source))
    else:
        _generate(cluster.nas / "cityscapes", cluster.node_python, say)
    log = settings.home() / "logs" / f"demo-{time.strftime('%Y%m%dT%H%M%S')}.log"
    command = ["airflow", "dags", "test", "scaling_benchmark", "-c", json.dumps(form)]
    say(f"the sweep starts now, {time.monotonic() - started:.1f} s after `scaleout demo`; about 3 minutes on 2 cores")
    say(f"$ {shlex.join(command)}    (all it prints: {log})")
    status = _follow(command, log, say)
    say(f"the sweep ended with exit status {status} after {time.monotonic() - started:.0f} s in all")
    return status


def terminal_width() -> int:
    return max(NARROWEST, shutil.get_terminal_size((NARROWEST + 60, 40)).columns)


def environment() -> dict[str, str]:
    """Of the local cluster, whichever one is chosen here: a demo has no business on that."""
    own = settings.local_connections_file()
    chosen = {"SCALEOUT_CLUSTER": LOCAL, "SCALEOUT_CONNECTIONS_FILE": str(own)}
    return {**os.environ, **settings.airflow_settings(own), **chosen}


def _existing(source: str) -> Path:
    folder = Path(source).expanduser().resolve()
    if not folder.is_dir():
        raise ConfigError(f"{SOURCE_VARIABLE}={source}: no such folder; it must hold leftImg8bit and gtFine")
    return folder


def _generate(out: Path, python: Path, say: Say) -> None:
    frames = TRAIN_FRAMES + VAL_FRAMES
    say(f"data: {frames} generated street scenes in {out} (about {frames * 3} MB and {frames * 0.6:.0f} s, once)")
    program = settings.training_dir() / "data" / "generate.py"
    counts = ["--train", str(TRAIN_FRAMES), "--val", str(VAL_FRAMES), "--seed", str(SEED)]
    done = subprocess.run([str(python), str(program), "--out", str(out), *counts])
    if done.returncode != 0:
        raise ScaleoutError(f"the data set could not be generated in {out}")


def _follow(command: list[str], log: Path, say: Say) -> int:
    """Runs Airflow with all of its output in `log`, and shows what our own tasks say. Ctrl-C reaches Airflow as well."""
    log.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace",
    )  # fmt: skip
    assert process.stdout is not None
    with log.open("w", encoding="utf-8") as out:
        while True:
            try:
                for line in process.stdout:
                    out.write(line)
                    _show(_COLOUR.sub("", line), say)
                return process.wait()
            except KeyboardInterrupt:
                print("stopping: Airflow ends the gang and compiles what there is", file=sys.stderr, flush=True)


def _show(line: str, say: Say) -> None:
    task, ours = _TASK.search(line), _OURS.match(line)
    if task and not task["task"].endswith(".gate"):
        say(f"── {task['task']}")
    elif ours and "not asked for" not in ours["text"]:
        say(f"   {'error: ' if ours['level'] == 'error' else ''}{ours['text']}")
