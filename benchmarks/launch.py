"""What launching a gang costs, beside a bare parallel loop of OpenSSH's client, on 2, 4 and 8 SSH hosts of this machine.

Both run the same command on every host, in turn within one run; medians, and the gang's over the loop's. Both connect anew
each time, and a gang also readies every node before any rank starts. Runs in the orchestrator's environment.
"""

from __future__ import annotations

import argparse
import asyncio
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(CHECKOUT), str(CHECKOUT / "include")]

from scaleout import settings
from scaleout.config.cluster import Cluster
from scaleout.local.cluster import LocalCluster
from scaleout.remote import release
from scaleout.remote.fleet import connected, each
from scaleout.remote.gang import Place, run_gang
from scaleout.remote.node import Node
from scaleout.remote.target import Target, target_from_file
from training.wire.job import Job

HOSTS = (2, 4, 8)
# What stands for a rank tells when it begins and when it ends; all hosts have this machine's clock.
RANK = ["sh", "-c", "date +%s.%N; sleep 0.5; date +%s.%N"]
CONNECT_LIMIT_S = 30.0
FIGURES = (
    ("start to the first rank's first line", "first_line_s"),
    ("start to the last rank's first line", "all_lines_s"),
    ("first rank's start to the last one's", "spread_s"),
    ("last rank's exit to the end", "end_s"),
)


@dataclass(frozen=True)
class Launch:
    """Seconds of one launch."""

    first_line_s: float
    all_lines_s: float
    spread_s: float
    end_s: float

    @classmethod
    def of(cls, started: float, heard: dict[str, list[tuple[float, float]]], ended: float) -> Launch:
        """From when each host's lines were heard, and the times that they hold: a rank's start and its exit."""
        begun = [lines[0] for lines in heard.values()]
        return cls(
            min(at for at, _ in begun) - started,
            max(at for at, _ in begun) - started,
            max(stamp for _, stamp in begun) - min(stamp for _, stamp in begun),
            ended - max(lines[-1][1] for lines in heard.values()),
        )


@dataclass(frozen=True)
class Hosts:
    """The local hosts, up, with the release on them."""

    cluster: LocalCluster
    release: str

    def target(self, number: int) -> Target:
        return target_from_file(self.cluster.folder / "connections.json", f"bench_{number}", f"node{number}")

    def targets(self, count: int) -> list[Target]:
        return [self.target(number) for number in range(1, count + 1)]

    def ssh(self, target: Target) -> list[str]:
        options = [
            "BatchMode=yes", f"IdentityFile={target.key_file}", f"UserKnownHostsFile={self.cluster.folder / 'known_hosts'}",
        ]  # fmt: skip
        flags = [part for option in options for part in ("-o", option)]
        return ["ssh", *flags, "-p", str(target.port), f"{target.user}@{target.host}", shlex.join(RANK)]


async def gang(hosts: Hosts, count: int, run: str) -> Launch:
    heard: dict[str, list[tuple[float, float]]] = {}
    started = time.time()
    async with connected(hosts.targets(count), python="python3", timeout_s=CONNECT_LIMIT_S) as nodes:
        places = [place(hosts, nodes, rank, run) for rank in range(count)]
        await run_gang(places, lambda node, line: heard.setdefault(node, []).append((time.time(), float(line))))
        return Launch.of(started, heard, time.time())


def place(hosts: Hosts, nodes: list[Node], rank: int, run: str) -> Place:
    node = nodes[rank]
    job = Job(
        run_id=run, trial="ssd-n1-cold-r1-t1", node=node.name, node_rank=rank, nodes=[one.name for one in nodes],
        release=hosts.release, command=RANK, cwd="/", environment={}, lease_s=30.0, grace_s=5.0, timeout_s=None,
        telemetry_interval_s=1.0,
    )  # fmt: skip
    folder = f"{node.home}/scaleout/runs/{run}/{job.trial}/{node.name}"
    return Place(node, job, release.release_path(node, "~/scaleout", hosts.release), folder)


async def loop(hosts: Hosts, count: int, _: str) -> Launch:
    heard: dict[str, list[tuple[float, float]]] = {}
    started = time.time()

    async def one(target: Target) -> None:
        process = await asyncio.create_subprocess_exec(*hosts.ssh(target), stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        async for line in process.stdout:
            heard.setdefault(target.name, []).append((time.time(), float(line)))
        if await process.wait() != 0:
            raise SystemExit(f"ssh to {target.name} failed")

    await asyncio.gather(*map(one, hosts.targets(count)))
    return Launch.of(started, heard, time.time())


async def measure(hosts: Hosts, repeats: int) -> None:
    ways: dict[str, Callable[[Hosts, int, str], Awaitable[Launch]]] = {"gang": gang, "ssh loop": loop}
    found: dict[tuple[str, int], list[Launch]] = {(way, count): [] for way in ways for count in HOSTS}
    for repeat in range(-1, repeats):
        for count in HOSTS:
            for way, launch in ways.items():
                one = await launch(hosts, count, f"bench-{count}-{repeat + 1}")
                if repeat >= 0:  # the first round warms files and name look-ups
                    found[way, count].append(one)
    print(f"medians of {repeats} repeats, seconds: gang, ssh loop, gang / ssh loop")
    for count in HOSTS:
        for title, name in FIGURES:
            ours, bare = (statistics.median(getattr(one, name) for one in found[way, count]) for way in ways)
            print(f"{count} hosts  {title:38} {ours:7.3f} {bare:7.3f} {ours / bare:7.2f}")


def up(folder: Path) -> LocalCluster:
    numbers = range(1, max(HOSTS) + 1)
    config = {
        "name": "bench",
        "nodes": [{"name": f"node{number}", "connection": f"bench_{number}"} for number in numbers],
        "cityscapes": "~/nas/cityscapes",
        "prepared": "~/nas/prepared",
        "device": "cpu",
        "processes_per_node": 1,
        "array": {"kind": "none"},
    }
    cluster = LocalCluster(Cluster.model_validate(config), folder / "hosts", folder / "nas", settings.node_python())
    cluster.up(print)
    lines = [
        f"[{target.host}]:{target.port} {target.host_key}\n" for target in Hosts(cluster, "").targets(len(numbers))
    ]
    (cluster.folder / "known_hosts").write_text("".join(lines))
    return cluster


async def deployed(cluster: LocalCluster) -> Hosts:
    name, archive = release.current_release(), release.pack()
    hosts = Hosts(cluster, name)
    async with connected(hosts.targets(max(HOSTS)), python="python3", timeout_s=CONNECT_LIMIT_S) as nodes:
        await each("deploying", nodes, lambda node: release.deploy(node, "~/scaleout", name, archive))
    return hosts


async def run(cluster: LocalCluster, repeats: int) -> None:
    await measure(await deployed(cluster), repeats)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory(prefix="scaleout-bench-") as folder:
        cluster = up(Path(folder))
        try:
            asyncio.run(run(cluster, repeats))
        finally:
            cluster.down(print)


if __name__ == "__main__":
    main()
