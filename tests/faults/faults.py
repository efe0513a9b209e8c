"""The faults: what is done to a gang, and how it must end."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from bed import BedHost
from launch import Launch
from machines import Process


@dataclass(frozen=True)
class Scene:
    """A gang that runs, and whom the fault is to hit."""

    launch: Launch
    rank: int

    @classmethod
    def of(cls, launch: Launch, chance: random.Random | None = None) -> Scene:
        """The last rank, on the last host, or any."""
        world = launch.order.world_size
        return cls(launch, chance.randrange(world) if chance else world - 1)

    @property
    def host(self) -> BedHost:
        return self.launch.host_of(self.rank)


Act = Callable[[Scene], None]


def nothing(_: Scene) -> None:
    return


@dataclass(frozen=True)
class Fault:
    """`end` is what the orchestrator must say (`killed`: nothing); `cause` a pattern for its sentence.

    `strike` does it. `mend` is done when nothing of the gang is left, for the next launch. `cut_off`: what the host logs can
    no more be heard. `resume`: another orchestrator goes on in place of the first.
    """

    name: str
    strike: Act
    end: str
    cause: str = ""
    mend: Act = nothing
    makes_no_progress: bool = False
    cut_off: bool = False
    resume: str = ""
    small_disk: bool = False


def send(process: Process | None, number: int) -> None:
    if process is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def signal_rank(number: int) -> Act:
    return lambda scene: send(scene.launch.rank(scene.rank), number)


def ask(what: str, value: str = "") -> Act:
    return lambda scene: scene.launch.behave(scene.rank, what, value)


def kill_launcher(scene: Scene) -> None:
    send(scene.launch.launcher(scene.host), signal.SIGKILL)


def kill_supervisors(*which: int) -> Act:
    """0 is the guardian, 1 the holder."""

    def strike(scene: Scene) -> None:
        found = scene.launch.supervisors(scene.host)
        for index in which:
            if index < len(found):
                send(found[index], signal.SIGKILL)

    return strike


def cut_for(seconds: float) -> Act:
    def strike(scene: Scene) -> None:
        scene.host.cut()
        try:
            time.sleep(seconds)
        finally:
            scene.host.restore()

    return strike


def restore(scene: Scene) -> None:
    scene.host.restore()


def start_sshd(scene: Scene) -> None:
    scene.host.start_sshd()


def restart_sshd(scene: Scene) -> None:
    scene.host.stop_sshd()
    time.sleep(0.5)
    scene.host.start_sshd()


def freeze_sshd_for(seconds: float) -> Act:
    def strike(scene: Scene) -> None:
        processes = scene.host.sshd_processes()
        for process in processes:
            send(process, signal.SIGSTOP)
        time.sleep(seconds)
        for process in processes:
            send(process, signal.SIGCONT)

    return strike


def reboot(scene: Scene) -> None:
    scene.host.lose_power()
    scene.host.boot()


def signal_orchestrator(number: int) -> Act:
    return lambda scene: scene.launch.orchestrator.process.send_signal(number)


NODE, RANK = r"^{node}: ", r"^{node}: rank {rank}: "
UNREACHED = NODE + r".*(reach|answer)"

FAULTS = (
    Fault("rank exits 9", ask("exit", "9"), "failed", RANK + ".*exit status 9"),
    Fault("rank SIGKILLed", signal_rank(signal.SIGKILL), "failed", RANK + ".*SIGKILL"),
    Fault("rank SIGSTOPped", signal_rank(signal.SIGSTOP), "failed", RANK + ".*no progress.*suspended", makes_no_progress=True),
    Fault("deadlock", ask("deadlock"), "failed", RANK + ".*no progress", makes_no_progress=True),
    Fault("launcher killed", kill_launcher, "failed", NODE + "failed: killed by SIGKILL"),
    Fault("holder killed", kill_supervisors(1), "failed", NODE + ".*supervisor.*SIGKILL"),
    Fault("guardian killed", kill_supervisors(0), "failed", NODE + ".*guardian"),
    Fault("holder and guardian killed", kill_supervisors(0, 1), "failed", NODE + ".*supervisor.*killed"),
    Fault("ssh connection killed", lambda s: s.host.end_sessions(), "succeeded"),
    Fault("sshd restarted", restart_sshd, "succeeded"),
    Fault("sshd stopped", lambda s: s.host.stop_sshd(), "failed", UNREACHED, mend=start_sshd, cut_off=True),
    Fault("sshd frozen for a third of the lease", freeze_sshd_for(1.0), "succeeded"),
    Fault("link cut for a third of the lease", cut_for(1.0), "succeeded"),
    Fault("link cut for longer than the lease", lambda s: s.host.cut(), "failed", UNREACHED, mend=restore, cut_off=True),
    Fault("node rebooted", reboot, "failed", NODE + ".*(restart|reboot)"),
    Fault("run directory full", lambda s: s.host.fill_runs(), "failed", NODE, small_disk=True),
    Fault("orchestrator killed", signal_orchestrator(signal.SIGKILL), "killed"),
    Fault("orchestrator killed, gang picked up", signal_orchestrator(signal.SIGKILL), "succeeded", resume="pick_up"),
    Fault("orchestrator frozen for longer than the lease", signal_orchestrator(signal.SIGSTOP), "killed"),
    Fault("Ctrl-C", signal_orchestrator(signal.SIGINT), "cancelled"),
)  # fmt: skip
BY_NAME = {fault.name: fault for fault in FAULTS}
