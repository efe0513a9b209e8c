"""Arrays that are emptied by any command, and clusters without one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from private_cluster import PrivateCluster

from scaleout.array.command import AnyCommandArray
from scaleout.array.make import array_connection, array_of
from scaleout.array.none import NoNasArray
from scaleout.array.onefs import OneFSArray
from scaleout.config.cluster import CommandArray
from scaleout.errors import ArrayError
from scaleout.local.ports import free_port


def ours(cluster: PrivateCluster, command: list[str], **config: Any) -> AnyCommandArray:
    document = {"kind": "command", "connection": "private_array", "command": command, "settle_s": 0, "timeout_s": 5}
    return AnyCommandArray(CommandArray.model_validate({**document, **config}), cluster.target("array"), 5)


def test_exit_status_0_is_the_acknowledgement(cluster: PrivateCluster) -> None:
    array = ours(cluster, ["sh", "-c", "echo 'a b; $(c)' > ~/flushed"])
    assert asyncio.run(array.check()) == {"array_nodes": None}
    assert not (cluster.home("array") / "flushed").exists()
    evidence = asyncio.run(array.flush())
    assert (evidence.kind, evidence.complete, evidence.reason) == ("command", True, None)
    assert (evidence.expected, evidence.acknowledged) == (None, ["127.0.0.1"])
    assert (cluster.home("array") / "flushed").read_text() == "a b; $(c)\n"


def test_any_other_is_told_with_the_commands_last_words(cluster: PrivateCluster) -> None:
    evidence = asyncio.run(ours(cluster, ["sh", "-c", "echo no such pool >&2; exit 3"]).flush())
    assert (evidence.complete, evidence.reason, evidence.acknowledged) == (False, "exit status 3: no such pool", [])


def test_a_command_that_asks_back_is_not_waited_for_until_the_limit(cluster: PrivateCluster) -> None:
    evidence = asyncio.run(ours(cluster, ["sh", "-c", "read answer || exit 4"]).flush())
    assert evidence.reason == "exit status 4: it said nothing"


def test_a_command_over_its_limit_is_an_error(cluster: PrivateCluster) -> None:
    with pytest.raises(ArrayError, match=r"^array array: did not finish within 0\.3 s: sleep 2"):
        asyncio.run(ours(cluster, ["sleep", "2"], timeout_s=0.3).flush())


def test_an_array_that_is_away_is_an_error(cluster: PrivateCluster) -> None:
    config = CommandArray(kind="command", connection="private_array", command=["true"])
    array = AnyCommandArray(config, replace(cluster.target("array"), port=free_port()), 5)
    with pytest.raises(ArrayError, match=r"^array array: cannot connect"):
        asyncio.run(array.check())


def test_without_an_array_nothing_is_claimed() -> None:
    array = NoNasArray()
    assert asyncio.run(array.check()) == {"array_nodes": None}
    evidence = asyncio.run(array.flush())
    assert (evidence.kind, evidence.complete, evidence.acknowledged) == ("none", False, [])
    assert evidence.reason == "the cluster's file names no array to flush"


def test_a_cluster_gets_the_array_that_its_file_names(cluster: PrivateCluster) -> None:
    onefs, target = cluster.local.cluster, cluster.target("array")
    command = onefs.model_copy(update={"array": CommandArray(kind="command", connection="c", command=["true"])})
    none = onefs.model_validate({**onefs.model_dump(), "array": {"kind": "none"}})
    assert [array_connection(one) for one in (onefs, command, none)] == ["private_array", "c", None]
    made = [type(array_of(one, at)) for one, at in ((onefs, target), (command, target), (none, None))]
    assert made == [OneFSArray, AnyCommandArray, NoNasArray]
