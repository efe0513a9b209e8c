"""Running commands on nodes: exit statuses, time limits, lost sessions, and values that a shell could spoil."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from awkward import ECHO, VALUES
from gangs import slow_loop, until
from hypothesis import HealthCheck, given, settings
from private_cluster import PATIENCE_S, PrivateCluster, with_variable

from scaleout.errors import FleetError, NodeError
from scaleout.remote.fleet import each
from scaleout.remote.node import Answer, Node


def run(cluster: PrivateCluster, command: list[str], *, stdin: bytes = b"", timeout_s: float = PATIENCE_S) -> Answer:
    async def once() -> Answer:
        async with cluster.connected("node1") as [node]:
            return await node.run(command, stdin=stdin, timeout_s=timeout_s)

    return asyncio.run(once())


@pytest.mark.parametrize("status", [0, 1, 9, 255])
def test_the_exit_status_is_the_commands_own(cluster: PrivateCluster, status: int) -> None:
    answer = run(cluster, ["sh", "-c", f"echo out; echo err >&2; exit {status}"])
    assert answer == Answer(status, "out\n", "err\n")


def test_a_command_that_is_killed_did_not_succeed(cluster: PrivateCluster) -> None:
    assert run(cluster, ["sh", "-c", "kill -9 $$"]).exit_status != 0


def test_a_command_that_does_not_exist_is_an_answer_with_the_shells_words(cluster: PrivateCluster) -> None:
    answer = run(cluster, ["no-such-program"])
    assert answer.exit_status == 127
    assert "no-such-program" in answer.last_words()


def test_a_command_without_input_finds_an_empty_one(cluster: PrivateCluster) -> None:
    assert run(cluster, ["sh", "-c", "cat; echo end"], timeout_s=5) == Answer(0, "end\n", "")


def test_large_input_and_output_arrive_whole(cluster: PrivateCluster) -> None:
    data = bytes(range(256)) * 20_000

    async def through() -> bytes:
        async with cluster.connected("node1") as [node]:
            await node.run(["sh", "-c", "cat > ~/through"], stdin=data, timeout_s=PATIENCE_S)
            return await node.read(["cat", f"{node.home}/through"], timeout_s=PATIENCE_S)

    assert asyncio.run(through()) == data


def test_a_command_that_ends_before_it_was_sent_its_input_answers_all_the_same(cluster: PrivateCluster) -> None:
    async def answers() -> list[Answer]:
        async with cluster.connected("node1") as [node], slow_loop():
            one = ["sh", "-c", "echo why >&2; exit 3"]
            return [await node.run(one, stdin=b"x" * 100_000, timeout_s=PATIENCE_S) for _ in range(8)]

    assert asyncio.run(answers()) == [Answer(3, "", "why\n")] * 8


def test_a_program_is_followed_line_by_line_to_its_exit_status(
    cluster: PrivateCluster, login_shell: Callable[[str, str], None]
) -> None:
    login_shell("node1", "echo welcome; echo 'no mail' >&2\n")
    said: list[tuple[float, str]] = []

    async def follow() -> int:
        async with cluster.connected("node1") as [node]:
            script = "echo first; sleep 0.5; echo 'two\twords' >&2; printf 'no line break'; cat; exit 7"
            return await node.follow(["sh", "-c", script], lambda line: said.append((time.monotonic(), line)))

    assert asyncio.run(follow()) == 7
    assert [line for _, line in said] == ["first", "two\twords", "no line break"]
    assert said[1][0] - said[0][0] > 0.3


def test_a_program_that_is_not_followed_any_more_ends(cluster: PrivateCluster) -> None:
    mark = f"SCALEOUT_TEST={uuid.uuid4().hex}"
    said: list[str] = []

    async def follow_for_a_while() -> None:
        async with cluster.connected("node1") as [node]:
            command = ["env", mark, "sh", "-c", "echo up; while :; do sleep 0.1; done"]
            following = asyncio.create_task(node.follow(command, said.append))
            await until(lambda: said == ["up"])
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following
        await until(lambda: not with_variable(mark.encode()))

    asyncio.run(follow_for_a_while())


def test_a_program_whose_connection_is_lost_is_an_error_and_ends(cluster: PrivateCluster) -> None:
    mark = f"SCALEOUT_TEST={uuid.uuid4().hex}"
    said: list[str] = []

    async def follow() -> None:
        async with cluster.connected("node1") as [node]:
            following = asyncio.create_task(
                node.follow(["env", mark, "sh", "-c", "echo up; exec sleep 60"], said.append)
            )
            await until(lambda: said == ["up"])
            cluster.cut_sessions("node1")
            with pytest.raises(NodeError, match=r"^node1: the connection was lost"):
                await following
        await until(lambda: not with_variable(mark.encode()))

    asyncio.run(follow())


def test_a_command_over_its_limit_is_an_error_that_names_it(cluster: PrivateCluster) -> None:
    started = time.monotonic()
    with pytest.raises(NodeError, match=r"^node1: did not finish within 0\.3 s: sleep 5$"):
        run(cluster, ["sleep", "5"], timeout_s=0.3)
    assert time.monotonic() - started < 3


def test_output_that_is_no_text_does_not_end_a_step(cluster: PrivateCluster) -> None:
    assert run(cluster, ["printf", "\\377x"]).stdout == "\ufffdx"


async def cut_short(cluster: PrivateCluster, node: Node) -> Answer:
    """A command whose session ends while it runs."""
    begun = cluster.home(node.name) / "begun"
    begun.unlink(missing_ok=True)
    command = asyncio.create_task(node.run(["sh", "-c", "echo half; >~/begun; sleep 3"], timeout_s=PATIENCE_S))
    await until(begun.exists)
    cluster.cut_sessions(node.name)
    return await command


def test_a_command_whose_session_is_killed_is_lost_and_never_a_success(cluster: PrivateCluster) -> None:
    async def lose() -> Answer:
        async with cluster.connected("node1") as [node]:
            return await cut_short(cluster, node)

    started = time.monotonic()
    with pytest.raises(NodeError, match=r"^node1: the connection was lost"):
        asyncio.run(lose())
    assert time.monotonic() - started < 3


def test_a_lost_session_spoils_reading_asking_and_the_next_command_too(cluster: PrivateCluster) -> None:
    async def lose() -> list[BaseException | object]:
        async with cluster.connected("node1") as [node]:
            both = asyncio.gather(
                node.read(["sleep", "3"], timeout_s=PATIENCE_S),
                node.ask("lock", "show", "~", "{", timeout_s=PATIENCE_S),
                return_exceptions=True,
            )
            await asyncio.sleep(0.3)
            cluster.cut_sessions("node1")
            last = await asyncio.gather(node.run(["true"], timeout_s=PATIENCE_S), return_exceptions=True)
            return [*(await both), *last]

    read, asked, after = asyncio.run(lose())
    assert all(isinstance(answer, NodeError) for answer in (read, asked, after))
    assert "the connection was lost" in str(read) and "the connection was lost" in str(after)


def test_a_program_that_fails_gives_its_last_words(cluster: PrivateCluster) -> None:
    async def ask() -> None:
        async with cluster.connected("node1") as [node]:
            await node.ask("network", "interface", "no-such-host.invalid", timeout_s=PATIENCE_S)

    with pytest.raises(NodeError, match=r"^node1: network: interface no-such-host\.invalid"):
        asyncio.run(ask())


@pytest.mark.parametrize("said", ["", "hello", "[1]", '{"a": 1}\nhello'])
def test_an_answer_that_is_no_object_is_told(cluster: PrivateCluster, said: str) -> None:
    async def ask() -> None:
        async with cluster.connected("node1") as [node]:
            node.last_object(await node.run(["printf", "%s", said], timeout_s=PATIENCE_S))

    with pytest.raises(NodeError, match=r"^node1: answered"):
        asyncio.run(ask())


@pytest.fixture(scope="module")
def open_node(cluster: PrivateCluster) -> Iterator[tuple[asyncio.Runner, Node]]:
    """One connection for many examples."""
    with asyncio.Runner() as runner:
        context = cluster.connected("node1")
        [node] = runner.run(context.__aenter__())
        yield runner, node
        runner.run(context.__aexit__(None, None, None))


@given(values=VALUES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_values_reach_the_nodes_program_unchanged(open_node: tuple[asyncio.Runner, Node], values: list[str]) -> None:
    runner, node = open_node
    received = runner.run(node.read(["python3", "-S", "-E", "-c", ECHO, *values], timeout_s=PATIENCE_S))
    assert received.decode().split("\0") == (values or [""])


def test_fan_out_waits_for_every_node_and_names_each_that_failed(cluster: PrivateCluster) -> None:
    async def do(node: Node) -> str:
        if node.name == "node3":
            await node.run(["sh", "-c", "sleep 0.5; echo done > ~/waited"], timeout_s=PATIENCE_S)
            return "fine"
        return str(await node.read(["sh", "-c", f"echo {node.name} is broken >&2; exit 3"], timeout_s=PATIENCE_S))

    async def fan_out() -> None:
        async with cluster.connected("node1", "node2", "node3") as nodes:
            await each("breaking things", nodes, do)

    waited = cluster.home("node3") / "waited"
    waited.unlink(missing_ok=True)
    with pytest.raises(FleetError) as caught:
        asyncio.run(fan_out())
    assert str(caught.value) == (
        "breaking things failed on 2 nodes:\n  node1: node1 is broken\n  node2: node2 is broken"
    )
    assert waited.read_text() == "done\n"


def test_fan_out_gives_every_nodes_answer_by_name(cluster: PrivateCluster) -> None:
    async def fan_out() -> dict[str, bytes]:
        async with cluster.connected("node2", "node1") as nodes:
            return await each("asking", nodes, lambda node: node.read(["sh", "-c", "echo ~"], timeout_s=PATIENCE_S))

    assert asyncio.run(fan_out()) == {name: f"{cluster.home(name)}\n".encode() for name in ("node2", "node1")}


def test_one_node_that_is_lost_does_not_hide_the_others_answers(cluster: PrivateCluster) -> None:
    async def do(node: Node) -> Answer:
        if node.name == "node1":
            return await cut_short(cluster, node)
        return await node.run(["echo", "here"], timeout_s=PATIENCE_S)

    async def fan_out() -> None:
        async with cluster.connected("node1", "node2") as nodes:
            await each("asking", nodes, do)

    with pytest.raises(FleetError, match="asking failed on 1 node:\n  node1: the connection was lost"):
        asyncio.run(fan_out())
