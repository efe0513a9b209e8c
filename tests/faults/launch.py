"""One gang on the bed: the orchestrator that holds it, and what can be seen of both from outside."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bed import Bed, BedHost
from machines import DIES_WITH_US, Process, in_network, wait_until

from scaleout import settings
from training.wire.events import Window, read_events
from training.wire.job import EVENTS_FILE, EXIT_FILE, LOG_FILE, ExitStatus
from training.wire.schema import read_json

PROGRAM = Path(__file__).with_name("programs") / "orchestrator.py"
LINE = re.compile(r"rank (\d+) line (\d+)")
NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Order:
    """What the orchestrator is asked for; `nodes` are the first so many of the bed."""

    release: str
    nodes: int
    ranks: str = "ring"
    per_node: int = 2
    action: str = "run"
    run_id: str = "faults"
    trial: str = ""
    step_s: float = 0.02
    lease_s: float = 3.0
    grace_s: float = 1.0
    patience_s: float = 30.0
    no_progress_s: float | None = None

    @property
    def world_size(self) -> int:
        return self.nodes * self.per_node


class Orchestrator:
    """The process, and what it has said."""

    def __init__(self, bed: Bed, hosts: Sequence[BedHost], order: Order, said: Path) -> None:
        self._said = said
        document = {**dataclasses.asdict(order), "targets": [dataclasses.asdict(host.target) for host in hosts]}
        # Where pytest was started with SIGINT ignored (its workers are), its children would ignore it as well.
        program = ["env", "--default-signal=INT", sys.executable, str(PROGRAM), json.dumps(document)]
        with said.open("wb") as out, said.with_suffix(".err").open("wb") as errors:
            self.started_s = time.time()
            self.process = subprocess.Popen(
                [*DIES_WITH_US, *in_network(bed.switch.pid, program)],
                env={**os.environ, "PYTHONPATH": f"{settings.CHECKOUT}:{settings.CHECKOUT / 'include'}"},
                stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True,
            )  # fmt: skip

    def said(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._said.read_text().splitlines(keepends=True) if line.endswith("\n")]

    def lines(self) -> list[tuple[str, str]]:
        """Node and text, as they came."""
        return [tuple(said["line"]) for said in self.said() if "line" in said]

    def errors(self) -> str:
        return self._said.with_suffix(".err").read_text()

    def wait(self, limit_s: float) -> dict[str, Any]:
        """The last thing that it said, when it has ended."""
        try:
            self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"the orchestrator did not end within {limit_s:g} s; it said {self.said()[-3:]}"
            ) from None
        return self.said()[-1] if self.said() else {"failed": self.errors(), "kind": "crash"}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Launch:
    """A gang of `order` on the first hosts of `bed`, from its start on."""

    def __init__(self, bed: Bed, order: Order) -> None:
        number = next(NUMBERS)
        self.bed, self.hosts = bed, bed.hosts[: order.nodes]
        self.order = dataclasses.replace(order, trial=order.trial or f"ssd-n{order.nodes}-cold-r{number}-t1")
        self._attempts = 0
        for host in self.hosts:
            shutil.rmtree(host.home / "behaviour", ignore_errors=True)
        self.orchestrator = self.attempt(self.order.action)

    def attempt(self, action: str) -> Orchestrator:
        """Another orchestrator for the same gang, beside the first, or after it."""
        self._attempts += 1
        said = self.bed.folder / f"{self.order.trial}-{self._attempts}.jsonl"
        order = dataclasses.replace(self.order, action=action)
        self.orchestrator = Orchestrator(self.bed, self.hosts, order, said)
        return self.orchestrator

    def behave(self, rank: int, what: str, value: str = "") -> None:
        """Writes what a rank is to do where it looks for it."""
        self._write(self.host_of(rank), f"{what}-{rank}", value)

    def finish(self) -> None:
        """The gang ends well at its next step."""
        self._write(self.hosts[0], "finish", "")

    def host_of(self, rank: int) -> BedHost:
        return self.hosts[rank // self.order.per_node]

    def counts(self) -> Counter[int]:
        """The lines that each rank was heard to say."""
        return Counter(int(match[1]) for _, text in self.orchestrator.lines() if (match := LINE.fullmatch(text)))

    def wait_for_lines(self, more: int, limit_s: float = 60.0) -> None:
        """Until every rank has been heard to say so many lines more."""
        before = self.counts()

        def all_heard() -> bool:
            now = self.counts()
            ended = self.orchestrator.process.poll()
            assert ended is None, (
                f"the orchestrator has ended ({ended}): {self.orchestrator.said()[-1:]} {self.orchestrator.errors()}"
            )
            return all(now[rank] >= before[rank] + more for rank in range(self.order.world_size))

        wait_until(all_heard, f"{more} lines of every rank (heard {dict(before)})", limit_s)

    # What runs on the hosts.

    def rank(self, rank: int) -> Process | None:
        """The process of a rank, which torchrun or the stand-in started; its children are none."""
        found = self.bed.on(self.host_of(rank))
        marked = [p for p in found if p.environment.get("RANK") == str(rank) and "LOCAL_RANK" in p.environment]
        pids = {p.pid for p in marked}
        return next((p for p in marked if int(p.parent) not in pids), None)

    def launcher(self, host: BedHost) -> Process | None:
        names = ("ring_launcher.py", "torch.distributed.run")
        found = self.bed.on(host)
        return next(
            (p for p in found if p.command[1:] and any(name in " ".join(p.command[1:3]) for name in names)), None
        )

    def supervisors(self, host: BedHost) -> list[Process]:
        """The guardian, then the holder."""
        found = [p for p in self.bed.on(host) if "guard" in p.command and any("supervisor.py" in c for c in p.command)]
        pids = {p.pid for p in found}
        return sorted(found, key=lambda p: int(p.parent) in pids)

    # What a gang leaves.

    def folder(self, host: BedHost) -> Path:
        home = host.home
        return host.path(home / "scaleout" / "runs" / self.order.run_id / self.order.trial / host.name)

    def exit_status(self, host: BedHost) -> ExitStatus | None:
        path = self.folder(host) / EXIT_FILE
        return read_json(ExitStatus, path) if path.exists() else None

    def logged(self, host: BedHost) -> list[str]:
        log = self.folder(host) / LOG_FILE
        return log.read_text(errors="replace").splitlines() if log.exists() else []

    def check_lines(self, out_of_reach: Sequence[BedHost] = ()) -> int:
        """That no line of a rank was lost or came twice; of a host that was cut off, that the first ones came. Counts them."""
        heard = self.orchestrator.lines()
        total = 0
        for host in self.hosts:
            logged = [text for text in self.logged(host) if LINE.fullmatch(text)]
            came = [text for node, text in heard if node == host.name and LINE.fullmatch(text)]
            expected = logged[: len(came)] if host in out_of_reach else logged
            assert came == expected, (
                f"{host.name}: {len(logged)} lines in its log, {len(came)} heard: {difference(logged, came)}"
            )
            total += len(came)
        return total

    def check_events(self) -> int:
        """That each rank's event log is whole, and has at least what the rank said before. Counts the steps."""
        total = 0
        for rank in range(self.order.world_size):
            host = self.host_of(rank)
            path = self.folder(host) / f"rank{rank}" / EVENTS_FILE
            steps = [event.body.step_first for event in read_events(path) if isinstance(event.body, Window)]
            said = sum(1 for text in self.logged(host) if (match := LINE.fullmatch(text)) and int(match[1]) == rank)
            assert steps == list(range(len(steps))), f"rank {rank}: its event log has gaps: {steps}"
            assert len(steps) >= said, f"rank {rank}: {len(steps)} steps in its event log, {said} lines"
            total += len(steps)
        return total

    def wait_until_nothing_is_left(self, limit_s: float) -> float:
        """Gives the seconds that it took."""
        started = time.monotonic()
        while left := self.bed.left():
            assert time.monotonic() - started < limit_s, f"after {limit_s:g} s there are still {left}"
            time.sleep(0.02)
        return time.monotonic() - started

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.orchestrator.process.send_signal(signal.SIGCONT)
        self.orchestrator.kill()

    def _write(self, host: BedHost, name: str, value: str) -> None:
        folder = host.home / "behaviour"
        folder.mkdir(exist_ok=True)
        partial = folder / f".{name}"
        partial.write_text(value)
        partial.replace(folder / name)


def difference(logged: list[str], came: list[str]) -> str:
    lost, more = Counter(logged) - Counter(came), Counter(came) - Counter(logged)
    return f"lost {list(lost)[:5]}, too many {list(more)[:5]}"


@contextlib.contextmanager
def launched(bed: Bed, order: Order) -> Iterator[Launch]:
    """A gang, whose orchestrator is killed in the end if it still runs."""
    launch = Launch(bed, order)
    try:
        yield launch
    finally:
        launch.close()


def check_none_doubled(bed: Bed) -> None:
    """That no rank found its GPU taken by an earlier gang's."""
    told = [
        line
        for host in bed.hosts
        if (host.home / "doubled").exists()
        for line in (host.home / "doubled").read_text().splitlines()
    ]
    for host in bed.hosts:
        (host.home / "doubled").unlink(missing_ok=True)
    assert not told, f"two gangs at once: {told}"


def run_briefly(bed: Bed, order: Order, limit_s: float = 60.0) -> float:
    """A whole short gang that must succeed. Gives the seconds from its launch to its first line of every rank."""
    with launched(bed, order) as launch:
        launch.wait_for_lines(2, limit_s)
        seconds = time.time() - launch.orchestrator.started_s
        launch.finish()
        end = launch.orchestrator.wait(limit_s)
        assert "succeeded" in end, f"a launch right after: {end} {launch.orchestrator.errors()}"
        launch.check_lines()
        launch.wait_until_nothing_is_left(limit_s)
    return seconds
