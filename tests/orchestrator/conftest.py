"""The private cluster that the tests of remote, array, local and node share."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import private_cluster
import pytest
from gangs import Gang
from private_cluster import PrivateCluster

from scaleout.remote import release


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    """Three nodes and an array, in a folder whose name has a space."""
    made = private_cluster.make(tmp_path_factory.mktemp("private cluster"), ["node1", "node2", "node3"])
    try:
        made.local.up(print)
        yield made
    finally:
        made.local.down(print)


@pytest.fixture(scope="session")
def deployed(cluster: PrivateCluster) -> str:
    """The release that lies on node1 and node2."""

    async def deploy() -> str:
        name, archive = release.current_release(), release.pack()
        async with cluster.connected("node1", "node2") as nodes:
            await asyncio.gather(*(release.deploy(node, "~/scaleout", name, archive) for node in nodes))
        return name

    return asyncio.run(deploy())


@pytest.fixture
def run_id() -> Iterator[str]:
    """A run that only this test knows; what it left behind is ended and fails the test."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    left = private_cluster.carrying(name)
    for process in left:
        process.kill()
    assert not left, f"the test left processes of its run: {left}"


@pytest.fixture
def gang(deployed: str, run_id: str) -> Gang:
    return Gang(run_id, deployed)


@pytest.fixture
def root() -> str:
    """A remote root that only this test uses, with a name that a careless shell would take apart."""
    return f"~/root {uuid.uuid4().hex[:8]} $(touch broken); it's"


@pytest.fixture
def login_shell(cluster: PrivateCluster) -> Iterator[Callable[[str, str], None]]:
    """`login_shell(node, script)`: what that node's login shell runs first, during this test."""
    written: list[Path] = []

    def write(node: str, script: str) -> None:
        path = cluster.home(node) / ".bashrc"
        written.append(path)
        path.write_text(script)

    yield write
    for path in written:
        path.unlink()
