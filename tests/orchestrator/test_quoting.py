"""Every value that reaches a shell is data: through real shells, and end to end."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from awkward import ECHO, EVERY_KIND, TEXTS, VALUES
from gangs import Gang
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from private_cluster import PATIENCE_S, PrivateCluster

from scaleout.array.command import AnyCommandArray
from scaleout.config.cluster import Cluster, CommandArray
from scaleout.config.form import Form
from scaleout.config.model import validated
from scaleout.errors import ConfigError
from scaleout.plan.commands import shown

SHELLS = ["sh", "bash"]
PYTHON = ["python3", "-S", "-E", "-c"]
TELL = (
    f"{ECHO}; sys.stdout.buffer.write(b'\\0' + os.getcwdb() + b'\\0' + os.environb[b'A'] + b'\\0' + os.environb[b'B'])"
)
fuzzed = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("shell", SHELLS)
@fuzzed
@given(values=VALUES, environment=st.tuples(TEXTS, TEXTS))
@example(values=EVERY_KIND, environment=("$(reboot); 'x'", "-n\n"))
def test_a_command_that_is_shown_does_the_same_when_pasted(
    tmp_path: Path, shell: str, values: list[str], environment: tuple[str, str]
) -> None:
    cwd = tmp_path / "-it's a $(folder)\n"
    cwd.mkdir(exist_ok=True)
    line = shown([*PYTHON, TELL, *values], str(cwd), dict(zip("AB", environment, strict=True)))
    done = subprocess.run([shell], input=line.encode() + b"\n", capture_output=True, timeout=30)
    assert done.stderr == b""
    *arguments, where, a, b = done.stdout.decode().split("\0")
    assert arguments == (values or [""])
    assert (where, a, b) == (str(cwd), *environment)


@pytest.mark.parametrize("shell", SHELLS)
@fuzzed
@given(values=VALUES)
@example(values=EVERY_KIND)
def test_a_login_shell_that_reads_the_command_line_gives_the_arguments(shell: str, values: list[str]) -> None:
    """As sshd does it: one line, to the login shell of whoever logs in."""
    line = shlex.join([*PYTHON, ECHO, *values])
    done = subprocess.run([shell, "-c", line], capture_output=True, timeout=30)
    assert (done.stdout.decode().split("\0"), done.stderr) == (values or [""], b"")


@pytest.mark.parametrize(
    "greeting", ["", "echo welcome; echo 'no mail' >&2\n", "printf 'last login: today'\nset -o noclobber\n"]
)
def test_all_kinds_reach_a_node_whatever_its_login_shell_says(
    cluster: PrivateCluster, login_shell: Callable[[str, str], None], greeting: str
) -> None:
    login_shell("node1", greeting)

    async def there() -> tuple[str, str]:
        async with cluster.connected("node1") as [node]:
            read = await node.read([*PYTHON, ECHO, *EVERY_KIND], timeout_s=PATIENCE_S)
            ran = await node.run([*PYTHON, ECHO, *EVERY_KIND], timeout_s=PATIENCE_S)
            return read.decode(), ran.stdout

    assert asyncio.run(there()) == ("\0".join(EVERY_KIND),) * 2


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(values=VALUES)
@example(values=EVERY_KIND)
def test_an_arrays_command_reaches_it_unchanged(cluster: PrivateCluster, values: list[str]) -> None:
    said = cluster.home("array") / "said"
    program = f"import os, sys; open({str(said)!r}, 'wb').write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
    command = ["python3", "-S", "-E", "-c", program, *values]
    config = CommandArray(kind="command", connection="private_array", command=command, settle_s=0, timeout_s=PATIENCE_S)
    evidence = asyncio.run(AnyCommandArray(config, cluster.target("array"), PATIENCE_S).flush())
    assert evidence.complete, evidence.reason
    assert said.read_bytes().decode().split("\0") == (values or [""])
    assert shlex.split(evidence.command) == command


def test_a_gangs_command_its_folder_and_its_environment_are_taken_as_they_are(
    cluster: PrivateCluster, gang: Gang
) -> None:
    """The supervisor's own command line carries the folder, the job file all else."""
    cwd = cluster.home("node1") / "work 'in' $(here)\n"
    cwd.mkdir(exist_ok=True)
    environment = {f"V{i}": value for i, value in enumerate(EVERY_KIND)}
    tell = "import json, os, sys; json.dump([sys.argv[1:], os.getcwd(), dict(os.environ)], open('told', 'w'))"
    trial = "t; $(touch broken) 'x' \"y\" é\n-n"

    async def run() -> str:
        async with cluster.connected("node1") as nodes:
            command = [*PYTHON, tell, *EVERY_KIND]
            await gang.run(gang.places(nodes, command, trial=trial, cwd=str(cwd), environment=environment))
            return gang.folder(nodes[0], trial)

    folder = asyncio.run(run())
    assert (Path(folder) / "exit.json").exists()
    arguments, where, received = json.loads((cwd / "told").read_text())
    assert (arguments, where) == (EVERY_KIND, str(cwd))
    assert {name: received.get(name) for name in environment} == environment
    assert not list(cluster.home("node1").rglob("broken"))


CLUSTER = {
    "name": "c", "nodes": [{"name": "n", "connection": "c"}], "cityscapes": "/c", "prepared": "/p", "processes_per_node": 1,
    "array": {"kind": "none"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("document", "key"),
    [
        (CLUSTER | {"cityscapes": "/mnt/a\0b"}, "cityscapes"),
        (CLUSTER | {"nodes": [{"name": "n", "connection": "c", "address": "10.0.0.1\0"}]}, "nodes.0.address"),
        (CLUSTER | {"environment": {"A": "\0"}}, "environment.A"),
        (CLUSTER | {"array": {"kind": "command", "connection": "nas", "command": ["a", "b\0"]}}, "array.command.1"),
    ],
)
def test_a_value_with_a_nul_is_refused_where_it_stands(document: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validated(Cluster, document, lambda path: "file:" + ".".join(map(str, path)))
    assert str(caught.value) == f"file:{key}: {key}: holds a NUL character, which no command and no path can hold"


def test_a_form_with_a_nul_is_refused_in_one_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^trigger form: cityscapes: holds a NUL character, which no .* can hold$"):
        Form.of({"cityscapes": "/mnt/\0"})


@fuzzed
@given(value=TEXTS)
def test_whatever_else_a_form_says_is_taken_as_it_stands(value: str) -> None:
    path = f"/mnt/{value}x"
    assert Form.of({"cityscapes": path}).cityscapes == path
    assert os.fsdecode(os.fsencode(path)) == path
