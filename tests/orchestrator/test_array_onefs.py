"""Emptying a OneFS array: what counts as proof, and what a user is told when there is none."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import private_cluster
import psutil
import pytest
from gangs import until
from private_cluster import PrivateCluster

from scaleout.array.base import FlushEvidence
from scaleout.array.onefs import OneFSArray, nodes_that_said, other_lines
from scaleout.config.cluster import OneFS
from scaleout.errors import ArrayError
from scaleout.local.onefs import FOLDER_VARIABLE
from scaleout.local.ports import free_port

ALL = ["f800-1", "f800-2", "f800-3", "f800-4"]


class Array:
    """The stand-in at the far end, and our end with a configuration."""

    def __init__(self, cluster: PrivateCluster) -> None:
        self.cluster, self.folder = cluster, cluster.host("array").folder

    def behave(self, **behaviour: Any) -> None:
        (self.folder / "behaviour.json").write_text(json.dumps(behaviour))

    def calls(self) -> list[tuple[str, int | None]]:
        log = self.folder / "calls.jsonl"
        calls = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return [(call["program"], call["array_node"]) for call in calls]

    def end_what_was_given_up(self) -> None:
        """A flush that we no longer wait for goes on at the far end, as it would on a real array."""
        mark = f"{FOLDER_VARIABLE}={self.folder}".encode()
        for process in private_cluster.with_variable(mark):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def ours(self, **config: Any) -> OneFSArray:
        settled = {"kind": "onefs", "connection": "private_array", "nodes": 4, "settle_s": 0, "timeout_s": 10, **config}
        return OneFSArray(OneFS.model_validate(settled), self.cluster.target("array"), 10)

    def flush(self, **config: Any) -> FlushEvidence:
        return asyncio.run(self.ours(**config).flush())

    def check(self, **config: Any) -> dict[str, Any]:
        return asyncio.run(self.ours(**config).check())


@pytest.fixture
def array(cluster: PrivateCluster) -> Iterator[Array]:
    one = Array(cluster)
    (one.folder / "calls.jsonl").unlink(missing_ok=True)
    yield one
    (one.folder / "behaviour.json").unlink(missing_ok=True)
    one.end_what_was_given_up()


def test_all_four_acknowledge(array: Array) -> None:
    before = time.time()
    evidence = array.flush()
    assert evidence.complete and evidence.reason is None
    assert (evidence.kind, evidence.expected, evidence.acknowledged) == ("onefs", 4, ALL)
    assert shlex.split(evidence.command) == ["isi_for_array", "-s", "isi_flush && echo scaleout-flushed"]
    assert before < evidence.t_wall_s < time.time()
    assert 0 < evidence.seconds < 10
    assert evidence.details == {"exit_status": 0, "other_lines": []}


def test_every_array_node_is_flushed_once_and_in_order(array: Array) -> None:
    array.flush()
    assert array.calls() == [("isi_for_array", None), *(("isi_flush", number) for number in (1, 2, 3, 4))]


@pytest.mark.parametrize(("tells", "exit_status"), [(True, 1), (False, 0)])
def test_one_array_node_that_fails_is_seen_whether_or_not_the_exit_status_tells(
    array: Array, tells: bool, exit_status: int
) -> None:
    array.behave(fail_on=[2], exit_status_tells=tells)
    evidence = array.flush()
    assert not evidence.complete
    assert evidence.reason == "3 of 4 array nodes acknowledged the flush"
    assert evidence.acknowledged == ["f800-1", "f800-3", "f800-4"]
    assert evidence.details["exit_status"] == exit_status
    assert evidence.details["other_lines"] == ["f800-2: isi_flush: Input/output error"]


def test_an_array_whose_nodes_all_fail_is_no_refusal_but_no_flush_either(array: Array) -> None:
    array.behave(fail_on=[1, 2, 3, 4])
    evidence = array.flush()
    assert (evidence.complete, evidence.acknowledged) == (False, [])
    assert len(evidence.details["other_lines"]) == 4


def test_a_slow_flush_within_its_limit_is_waited_for(array: Array) -> None:
    array.behave(delay_s=0.2)
    evidence = array.flush(timeout_s=10)
    assert evidence.complete
    assert evidence.seconds >= 0.8


def test_a_flush_beyond_its_limit_is_an_error(array: Array) -> None:
    array.behave(delay_s=2)
    started = time.monotonic()
    with pytest.raises(ArrayError, match=r"^array .*did not finish within 0\.5 s: isi_for_array"):
        array.flush(timeout_s=0.5)
    assert time.monotonic() - started < 3


def test_the_array_is_given_time_to_settle(array: Array) -> None:
    started = time.monotonic()
    evidence = array.flush(settle_s=0.6)
    assert time.monotonic() - started >= 0.6 + evidence.seconds
    assert evidence.settled_s == 0.6


def test_a_refusal_says_which_privilege_is_missing(array: Array) -> None:
    array.behave(refuse=True)
    for ask in (array.flush, array.check):
        with pytest.raises(ArrayError) as caught:
            ask()
        assert "refused `isi_for_array` as root (exit status 77)" in str(caught.value)
        assert "The following read-only privilege is required: ISI_PRIV_CLUSTER" in str(caught.value)


def test_a_refusal_under_a_shell_that_greets_is_still_a_refusal(array: Array, login_shell: Any) -> None:
    login_shell("array", "echo 'Copyright: Isilon'")
    array.behave(refuse=True)
    with pytest.raises(ArrayError, match="ISI_PRIV_CLUSTER"):
        array.flush()


def test_checking_counts_the_array_nodes_and_flushes_nothing(array: Array) -> None:
    assert array.check() == {"array_nodes": ALL}
    assert array.calls() == [("isi_for_array", None)]


@pytest.mark.parametrize("present", [3, 5])
def test_another_number_of_array_nodes_is_told_before_anything_runs(array: Array, present: int) -> None:
    array.behave(nodes=present)
    names = ", ".join(f"f800-{number}" for number in range(1, present + 1))
    said = rf"{present} of 4 array nodes answered \({names}\): mend the array, or its `nodes` in the cluster's file"
    with pytest.raises(ArrayError, match=said):
        array.check()
    assert not array.flush().complete


def test_sudo_is_used_where_the_file_says_so(array: Array) -> None:
    sudo = array.folder / "bin" / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$1" = -n ] || exit 64\nshift\ntouch "$SCALEOUT_STAND_IN_ARRAY/as-root"\nexec "$@"\n')
    sudo.chmod(0o755)
    assert array.flush(sudo=True).complete
    assert (array.folder / "as-root").exists()


@pytest.mark.parametrize("what", ["closed", "key"])
def test_an_array_that_cannot_be_reached_is_named(array: Array, what: str) -> None:
    target = array.cluster.target("array")
    if what == "closed":
        target = replace(target, port=free_port())
    else:
        target = replace(target, host_key=array.cluster.target("node1").host_key)
    ours = OneFSArray(OneFS(kind="onefs", connection="private_array", nodes=4), target, 5)
    with pytest.raises(ArrayError, match=r"^array array: .*127\.0\.0\.1:\d+"):
        asyncio.run(ours.flush())


def test_a_lost_session_is_an_error_and_no_flush(array: Array) -> None:
    async def lose() -> None:
        flushing = asyncio.create_task(array.ours().flush())
        await until(lambda: array.calls() != [])
        array.cluster.cut_sessions("array")
        await flushing

    array.behave(delay_s=0.5)
    with pytest.raises(ArrayError, match="the connection was lost"):
        asyncio.run(lose())


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("", []),
        ("f800-2: scaleout-flushed\nf800-1: scaleout-flushed\n", ["f800-1", "f800-2"]),
        ("f800-1: scaleout-flushed\nf800-1: scaleout-flushed\n", ["f800-1"]),
        ("f800-1:scaleout-flushed \r\n", ["f800-1"]),
        ("scaleout-flushed\n: scaleout-flushed\n", []),
        ("f800-1: not scaleout-flushed\nf800-2: scaleout-flushed, almost\n", []),
        ("f800-1: sh: isi_flush && echo scaleout-flushed: not found\n", []),
    ],
)
def test_only_the_word_itself_behind_a_nodes_name_counts(output: str, said: list[str]) -> None:
    assert nodes_that_said("scaleout-flushed", output) == said


def test_the_arrays_own_words_are_kept() -> None:
    assert other_lines("f800-1: scaleout-flushed\nf800-2: isi_flush: Input/output error\nbye\n") == [
        "f800-2: isi_flush: Input/output error",
        "bye",
    ]
