"""Two orchestrators and one set of hosts: never two gangs at once."""

from __future__ import annotations

import os
import signal

from bed import Bed
from launch import Launch, Order, check_none_doubled, launched, run_briefly
from machines import Process, wait_until

from training.wire.job import JOB_FILE

TOLD_LIMIT_S, GONE_LIMIT_S = 40.0, 20.0


def test_a_launch_beside_a_gang_whose_orchestrator_was_killed_ends_that_gang_first(bed: Bed, release: str) -> None:
    order = Order(release, 2, lease_s=30)
    with launched(bed, order) as first:
        first.wait_for_lines(3)
        first.orchestrator.kill()
        run_briefly(bed, order)
        check_none_doubled(bed)


def test_of_two_orchestrators_the_later_one_has_the_gang(bed: Bed, release: str) -> None:
    with launched(bed, Order(release, 2)) as launch:
        launch.wait_for_lines(3)
        first = launch.orchestrator
        second = launch.attempt("pick_up")
        end = first.wait(TOLD_LIMIT_S)
        assert end.get("kind") == "SupersededError", end
        launch.wait_for_lines(3)
        launch.finish()
        assert "succeeded" in second.wait(TOLD_LIMIT_S)
        launch.check_lines()
        launch.wait_until_nothing_is_left(GONE_LIMIT_S)
        check_none_doubled(bed)


def test_an_orchestrator_that_wakes_up_late_starts_nothing_beside_a_newer_gang(bed: Bed, release: str) -> None:
    """Asleep after its nodes have got ready, before it has told them to go."""
    order = Order(release, 2, lease_s=30)
    with launched(bed, order) as late:
        put_to_sleep_when_ready(late)
        meet_newer_gang(late, order)


def meet_newer_gang(late: Launch, order: Order) -> None:
    bed = late.bed
    with launched(bed, order) as newer:
        newer.wait_for_lines(3)
        late.orchestrator.process.send_signal(signal.SIGCONT)
        end = late.orchestrator.wait(TOLD_LIMIT_S)
        assert "a newer launch has taken this node" in end.get("failed", ""), end
        newer.wait_for_lines(3)
        newer.finish()
        assert "succeeded" in newer.orchestrator.wait(TOLD_LIMIT_S)
        newer.check_lines()
        newer.wait_until_nothing_is_left(GONE_LIMIT_S)
        check_none_doubled(bed)


def put_to_sleep_when_ready(launch: Launch) -> None:
    """The last host is held up until the orchestrator sleeps; so it finds all of them ready when it wakes up."""
    held_up = launch.hosts[-1]

    def preparing() -> list[Process]:
        return [process for process in launch.bed.on(held_up) if "start" in process.command]

    wait_until(lambda: bool(preparing()), "the last host to get ready", TOLD_LIMIT_S)
    processes = preparing()
    for process in processes:
        os.kill(process.pid, signal.SIGSTOP)
    wait_until(lambda: (launch.folder(launch.hosts[0]) / JOB_FILE).exists(), "the first host to get ready")
    launch.orchestrator.process.send_signal(signal.SIGSTOP)
    for process in processes:
        os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: (launch.folder(held_up) / JOB_FILE).exists(), "the last host to get ready")
