"""Plays OneFS at the far end of an SSH connection: the commands `isi_for_array` and `isi_flush`.

What it answers is as facts about OneFS have it: a line prefix per array node, silence of `isi_flush` on success. How it
behaves stands in `behaviour.json` in the host's folder and can be changed while it runs; every call is appended to
`calls.jsonl` there.

    {"nodes": 4, "fail_on": [2], "delay_s": 0.0, "refuse": false, "exit_status_tells": true}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

FOLDER_VARIABLE = "SCALEOUT_STAND_IN_ARRAY"
NODE_VARIABLE = "SCALEOUT_STAND_IN_ARRAY_NODE"


@dataclass(frozen=True)
class Behaviour:
    """How the array answers. `exit_status_tells`: whether `isi_for_array` reports a node's failure in its exit status."""

    nodes: int = 4
    fail_on: list[int] = field(default_factory=list)
    delay_s: float = 0.0
    refuse: bool = False
    exit_status_tells: bool = True


def behaviour(folder: Path) -> Behaviour:
    path = folder / "behaviour.json"
    return Behaviour(**json.loads(path.read_text())) if path.exists() else Behaviour()


def record(folder: Path, program: str, arguments: list[str], array_node: int | None) -> None:
    line = json.dumps({"t_wall_s": time.time(), "program": program, "arguments": arguments, "array_node": array_node})
    with (folder / "calls.jsonl").open("a") as log:
        log.write(line + "\n")


def isi_for_array(folder: Path, arguments: list[str]) -> int:
    """Runs a shell command on every array node in turn, its output behind the node's name."""
    record(folder, "isi_for_array", arguments, None)
    current = behaviour(folder)
    if current.refuse:
        print(
            "Privilege check failed. The following read-only privilege is required: ISI_PRIV_CLUSTER", file=sys.stderr
        )
        return 77
    command = " ".join(argument for argument in arguments if argument != "-s")
    failed = False
    for array_node in range(1, current.nodes + 1):
        environment = {**os.environ, NODE_VARIABLE: str(array_node)}
        done = subprocess.run(["/bin/sh", "-c", command], env=environment, capture_output=True, text=True)
        for line in (done.stdout + done.stderr).splitlines():
            print(f"f800-{array_node}: {line}", flush=True)
        failed = failed or done.returncode != 0
    return 1 if failed and current.exit_status_tells else 0


def isi_flush(folder: Path, arguments: list[str]) -> int:
    """Empties the caches of one array node: here it only waits, says nothing, and is written down."""
    array_node = int(os.environ.get(NODE_VARIABLE, "1"))
    current = behaviour(folder)
    time.sleep(current.delay_s)
    if array_node in current.fail_on:
        print("isi_flush: Input/output error", file=sys.stderr)
        return 1
    record(folder, "isi_flush", arguments, array_node)
    return 0


if __name__ == "__main__":
    here = Path(os.environ[FOLDER_VARIABLE])
    sys.exit({"isi_for_array": isi_for_array, "isi_flush": isi_flush}[sys.argv[1]](here, sys.argv[2:]))
