"""Faults at random moments, one gang after another on the same hosts."""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from bed import Bed
from faults import FAULTS, Fault, Scene
from launch import Launch, Order, check_none_doubled, launched

TORCH_EVERY = 10
END_LIMIT_S, GONE_LIMIT_S = 90.0, 30.0
# Until ranks of torch have begun their event logs, two cores are busy with imports.
NO_PROGRESS_S = {"ring": 6.0, "torch": 45.0}
LATEST_S = {"ring": 3.0, "torch": 15.0}


@dataclass
class Struck:
    """One gang and what came over it, `after_s` from its launch."""

    number: int
    fault: str
    nodes: int
    ranks: str
    rank: int
    after_s: float
    end: str = "?"
    gone_s: float | None = None
    problem: str = ""


@dataclass
class Tally:
    """Of all gangs of a soak."""

    seed: int
    struck: list[Struck] = field(default_factory=list)
    orphans: int = 0
    doubled: int = 0

    def problems(self) -> list[Struck]:
        return [one for one in self.struck if one.problem]

    def text(self) -> str:
        ends = Counter(one.end for one in self.struck)
        torch = sum(one.ranks == "torch" for one in self.struck)
        told = "".join(f"\n  {one}" for one in self.problems())
        kinds = ", ".join(f"{fault} {count}" for fault, count in sorted(Counter(o.fault for o in self.struck).items()))
        return (
            f"seed {self.seed}: {len(self.struck)} faults at random moments ({torch} with torch): {self.orphans} orphans, "
            f"{self.doubled} doubled gangs, {len(self.problems())} problems; ends: {dict(ends)}; faults: {kinds}{told}\n"
        )


def strike_once(bed: Bed, release: str, tally: Tally, number: int) -> None:
    """A gang, and a fault at a random moment of its life, from before its first connection on."""
    chance = random.Random(f"{tally.seed}-{number}")
    ranks = "torch" if number % TORCH_EVERY == TORCH_EVERY - 1 else "ring"
    fault, nodes = chance.choice(FAULTS), chance.choice((1, 2) if ranks == "torch" else (1, 2, 4))
    order = Order(release, nodes, ranks, 1 if ranks == "torch" else 2, no_progress_s=NO_PROGRESS_S[ranks])
    with contextlib.ExitStack() as stack:
        if fault.small_disk:
            for host in bed.hosts[:nodes]:
                stack.enter_context(host.with_small_runs())
        launch = stack.enter_context(launched(bed, order))
        scene = Scene.of(launch, chance)
        one = Struck(number, fault.name, nodes, ranks, scene.rank, chance.uniform(0, LATEST_S[ranks]))
        tally.struck.append(one)
        try:
            follow(launch, scene, fault, one, chance)
        finally:
            count_left(bed, tally)


def follow(launch: Launch, scene: Scene, fault: Fault, one: Struck, chance: random.Random) -> None:
    time.sleep(one.after_s)
    ran = all(launch.counts()[rank] for rank in range(launch.order.world_size))
    fault.strike(scene)
    if fault.resume:
        launch.orchestrator.process.wait()
        launch.attempt(fault.resume)
    # What was not hit goes on, and comes to a good end.
    time.sleep(chance.uniform(0, 1))
    launch.finish()
    one.end = "killed"
    if fault.end != "killed":
        end = launch.orchestrator.wait(END_LIMIT_S)
        one.end = next(key for key in end if key != "t")
        expected = {fault.end} if ran and fault.end == "succeeded" else {"succeeded", "failed", "cancelled"}
        assert one.end in expected, f"{end} {launch.orchestrator.errors()[-1000:]}"
    one.gone_s = launch.wait_until_nothing_is_left(GONE_LIMIT_S)
    fault.mend(scene)
    if one.end == "succeeded":
        launch.check_lines()
        launch.check_events()


def count_left(bed: Bed, tally: Tally) -> None:
    tally.orphans += len(bed.left())
    try:
        check_none_doubled(bed)
    except AssertionError:
        tally.doubled += 1
        raise


def soak(bed: Bed, release: str, tally: Tally, count: int) -> None:
    for number in range(count):
        try:
            strike_once(bed, release, tally, number)
        except (AssertionError, OSError) as error:
            tally.struck[-1].problem = str(error)[:1000]
            bed.mend()
