"""Whatever the processes below this one become, they stay below it, and none outlives it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable

import psutil

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TICK_S = 0.05
KILL_LIMIT_S = 30.0


def adopt_orphans() -> None:
    """Makes this process a child subreaper: a descendant whose parent dies becomes its child."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int, number: int) -> None:
    """Has this process sent the signal when `parent`, which forked it, dies, or at once if it has died already."""
    _prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def all_descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def living_descendants() -> list[psutil.Process]:
    """All descendants but the dead ones, whom nobody has waited for yet."""
    return [process for process in all_descendants() if _is_alive(process)]


def end_descendants(grace_s: float, launcher: subprocess.Popen[bytes] | None = None) -> set[int]:
    """Ends them all and waits for them, but for the launcher. Gives the ids of those it had to end."""
    told = end_all(living_descendants, grace_s, lambda: reap(launcher))
    reap(launcher)
    return told


def end_all(
    find: Callable[[], list[psutil.Process]], grace_s: float, after_round: Callable[[], None] = lambda: None
) -> set[int]:
    """TERM, the grace period, then KILL until `find` gives none; each round looks again, for what was forked meanwhile.

    TERM is followed by CONT: a process that was stopped could not act on it. Gives the ids of those it had to end.
    """
    deadline = time.monotonic() + grace_s
    told: set[int] = set()
    while (found := find()) and time.monotonic() < deadline + KILL_LIMIT_S:
        late = time.monotonic() >= deadline
        for process in found:
            if late or process.pid not in told:
                told.add(process.pid)
                _end(process, signal.SIGKILL if late else signal.SIGTERM)
        after_round()
        time.sleep(TICK_S)
    return told


def _end(process: psutil.Process, number: int) -> None:
    try:
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
    except psutil.NoSuchProcess:
        return


def reap(launcher: subprocess.Popen[bytes] | None = None) -> None:
    """Waits for what died below us, without a look through /proc; the launcher's own status is left to its Popen."""
    while True:
        if launcher is not None:
            launcher.poll()
        try:
            dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if dead is None:
            return
        if launcher is None or dead.si_pid != launcher.pid:
            os.waitpid(dead.si_pid, 0)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")
