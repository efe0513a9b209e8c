"""Linux namespaces for hosts of the tests: machines, and a switch that they are plugged into. They need root.

Nothing of them has a name outside: a namespace lives as long as a process in it, and the first process of each is killed by
the kernel when the process that made it dies, however it dies. So neither links nor mounts nor processes can be left over.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Self

from scaleout.local.packages import Say, install

DIES_WITH_US = ["setpriv", "--pdeathsig", "KILL"]
INIT = Path(__file__).with_name("host_init.py")
BOOT_ID = "/proc/sys/kernel/random/boot_id"
START_LIMIT_S = 10.0
FORWARDING, DISABLED = 3, 0  # states of a bridge's port, <linux/if_bridge.h>


def are_allowed() -> bool:
    """Whether this user may make namespaces and links on this machine."""
    probe = ["unshare", "--net", "--pid", "--mount", "--uts", "--fork", "--mount-proc", "true"]
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "setpriv"))):
        return False
    return subprocess.run(probe, stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def ensure_ip(say: Say) -> None:
    """Installs `ip` where it is missing and we may. Raises ScaleoutError."""
    if shutil.which("ip", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is None:
        install("iproute2", what="ip", size="1 MB", say=say)


def in_network(pid: int, command: Sequence[str]) -> list[str]:
    """`command` as a program of the network of process `pid`; what starts it may take its process id for the program's."""
    return ["nsenter", "--target", str(pid), "--net", "--", *command]


def ip(pid: int, *lines: str, program: str = "ip") -> None:
    """Commands of `ip` in the network of process `pid`, all or an error. It is installed where it is missing."""
    ensure_ip(print)
    command = in_network(pid, [program, "-batch", "-"])
    done = subprocess.run(command, input="\n".join(lines) + "\n", capture_output=True, text=True)
    assert done.returncode == 0, f"{program}: {done.stderr}"


class Switch:
    """A bridge in a network of its own, with an address for the orchestrator, which runs in that network."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen(
            [*DIES_WITH_US, "unshare", "--net", "--", "sleep", "infinity"], stdin=subprocess.DEVNULL
        )
        ours = os.readlink("/proc/self/ns/net")
        wait_until(lambda: os.readlink(f"/proc/{self.pid}/ns/net") != ours, "the switch's network")
        ip(self.pid, "link set lo up", "link add br0 type bridge", "link set br0 up", f"addr add {address}/24 dev br0")

    @property
    def pid(self) -> int:
        return self._process.pid

    def plug_in(self, port: str, machine: int, mac: str) -> None:
        """Gives the network of process `machine` an `eth0` that leads here."""
        ip(
            self.pid,
            f"link add {port} type veth peer name eth0 address {mac} netns {machine}",
            f"link set {port} master br0 up",
        )

    def pull_out(self, port: str) -> None:
        """The link of a machine whose processes have ended may be gone already, or go at any moment."""
        command = in_network(self.pid, ["ip", "link", "del", port])
        subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)

    def set_state(self, port: str, state: int) -> None:
        """DISABLED: frames are dropped in both directions, and neither end is told. FORWARDING: as before."""
        ip(self.pid, f"link set dev {port} state {state}", program="bridge")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class Machine:
    """A network with its loopback up, processes, mounts and a host name of their own. Of all other processes it sees nothing;
    files are shared."""

    def __init__(self) -> None:
        kinds = ["--net", "--pid", "--mount", "--uts", "--fork", "--kill-child", "--mount-proc"]
        self._unshare = subprocess.Popen(
            [*DIES_WITH_US, "unshare", *kinds, "--", sys.executable, "-I", "-S", str(INIT)], stdin=subprocess.DEVNULL
        )
        wait_until(lambda: bool(self._children()), "the machine's first process")
        (self.init,) = self._children()
        # Until it is the program itself, its mounts may not be all there.
        wait_until(lambda: INIT.name in Path(f"/proc/{self.init}/cmdline").read_text(), "the machine's first program")
        self.pid_namespace = os.readlink(f"/proc/{self.init}/ns/pid")
        self.up("lo")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def enter(self, command: Sequence[str]) -> list[str]:
        """`command` as a program of this machine."""
        return ["nsenter", "--target", str(self.init), "--net", "--pid", "--mount", "--uts", "--", *command]

    def call(self, *command: str) -> None:
        done = subprocess.run(self.enter(command), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        assert done.returncode == 0, f"{command}: {done.stderr}"

    def puts(self, file: Path, over: str) -> None:
        """Its programs find `file` where `over` was."""
        self.call("mount", "--bind", str(file), over)

    def knows(self, hosts: Path, *lines: str) -> None:
        """What stands in its /etc/hosts, which is `hosts`."""
        hosts.write_text("".join(f"{line}\n" for line in lines))
        self.puts(hosts, "/etc/hosts")

    def link(self, other: Machine) -> None:
        """A cable between the two, as the `eth0` of either."""
        self.ip(f"link add eth0 type veth peer name eth0 netns {other.init}")

    def ip(self, *lines: str) -> None:
        ip(self.init, *lines)

    def add_bridge(self, interface: str, *addresses: str) -> None:
        self.ip(f"link add {interface} type bridge")
        self.up(interface, *addresses)

    def up(self, interface: str, *addresses: str) -> None:
        told = [f"addr add {address} dev {interface}{' nodad' if ':' in address else ''}" for address in addresses]
        self.ip(*told, f"link set {interface} up")

    def wait_for_carrier(self, interface: str) -> None:
        """The kernel notices both ends of a cable a moment after they are up."""

        def has_carrier() -> bool:
            show = in_network(self.init, ["ip", "-json", "link", "show", interface])
            return json.loads(subprocess.run(show, capture_output=True, check=True).stdout)[0]["operstate"] == "UP"

        wait_until(has_carrier, f"the carrier of {interface}")

    def close(self) -> None:
        """Ends all its processes at once."""
        self._unshare.kill()
        self._unshare.wait()
        wait_until(lambda: not list(processes_in([self.pid_namespace])), "the machine's processes to end")

    def _children(self) -> list[int]:
        pid = self._unshare.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Process:
    """A running process of a machine, as it is seen from outside."""

    def __init__(self, pid: int) -> None:
        """Raises OSError when it has ended."""
        self.pid = pid
        fields = Path(f"/proc/{pid}/stat").read_text()
        self.name = fields[fields.index("(") + 1 : fields.rindex(")")]
        self.state, self.parent, *_ = fields[fields.rindex(")") + 2 :].split()
        self.command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")
        self.environment = dict(entry.split("=", 1) for entry in entries if "=" in entry)

    def __repr__(self) -> str:
        return f"<{self.pid} {self.state} {' '.join(self.command).strip()[:160]}>"


def processes_in(namespaces: Iterable[str]) -> Iterable[Process]:
    """The living processes of machines, by the machines' `pid_namespace`."""
    wanted = set(namespaces)
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/ns/pid") in wanted and (found := Process(int(name))).state not in "ZX":
                yield found
        except (OSError, ValueError):  # it ended while we looked
            continue


def wait_until(holds: Callable[[], bool], what: str, limit_s: float = START_LIMIT_S) -> float:
    """Waits until `holds()`, and gives the seconds that it took."""
    started = time.monotonic()
    while not holds():
        assert time.monotonic() - started < limit_s, f"waited {limit_s:g} s in vain for {what}"
        time.sleep(0.01)
    return time.monotonic() - started
