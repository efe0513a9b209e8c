"""The test bed: hosts with an address, a process table and an sshd each, whose links can be cut and which can be rebooted."""

from __future__ import annotations

import contextlib
import os
import pwd
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from machines import (
    BOOT_ID,
    DISABLED,
    FORWARDING,
    Machine,
    Process,
    Switch,
    in_network,
    processes_in,
    wait_until,
)

from scaleout import settings
from scaleout.local.cluster import ensure_sshd
from scaleout.local.hosts import Host, make_key, sshd_program
from scaleout.remote.target import SSH_PORT, Target

SUBNET = "10.77.0"
RUNS_BYTES = 4 * 2**20


class BedHost:
    """A host. What it has on disk survives a reboot."""

    def __init__(self, files: Host, number: int, switch: Switch, key_file: Path) -> None:
        self.files, self._number, self._switch, self._key_file = files, number, switch, key_file
        self._machine: Machine | None = None
        self._boots = 0
        files.prepare()
        (files.home / "tmp").mkdir(exist_ok=True)

    @property
    def name(self) -> str:
        return self.files.name

    @property
    def address(self) -> str:
        return self.files.address

    @property
    def home(self) -> Path:
        return self.files.home

    @property
    def machine(self) -> Machine:
        assert self._machine is not None, f"{self.name} is switched off"
        return self._machine

    @property
    def target(self) -> Target:
        user = pwd.getpwuid(os.getuid()).pw_name
        return Target(self.name, self.address, SSH_PORT, user, str(self._key_file), self.files.host_key)

    def boot(self) -> None:
        """Switches it on: a fresh boot id, a network with a docker0 that leads nowhere, sshd."""
        self._machine = Machine()
        self._boots += 1
        boot_id = self.files.folder / "boot_id"
        boot_id.write_text(f"{uuid.uuid4()}\n")
        self.machine.puts(boot_id, BOOT_ID)
        self.machine.call("hostname", self.name)
        self.machine.add_bridge("docker0", "172.17.0.1/16")
        # The same hardware address each time: the other hosts remember it.
        self._switch.plug_in(self._port, self.machine.init, f"02:00:00:00:00:{self._number:02x}")
        self.machine.up("eth0", f"{self.address}/24")
        self.start_sshd()

    def start_sshd(self) -> None:
        pid_file = self.files.folder / "sshd.pid"
        pid_file.unlink(missing_ok=True)
        log = str(self.files.folder / "sshd.log")
        self.machine.call(str(sshd_program()), "-f", str(self.files.config), "-E", log)
        # sshd writes it when it listens.
        wait_until(pid_file.exists, f"sshd of {self.name}; see {log}")

    def stop_sshd(self) -> None:
        """Ends the daemon and its sessions, nothing that they started."""
        self._kill(self.sshd_processes())

    def end_sessions(self) -> None:
        """Kills what serves the connections to this host; the daemon goes on."""
        self._kill([process for process in self.sshd_processes() if "[listener]" not in process.command[0]])

    def sshd_processes(self) -> list[Process]:
        return [process for process in processes_in([self.machine.pid_namespace]) if process.name == "sshd"]

    def cut(self) -> None:
        """From now on no packet reaches or leaves the host, and nobody is told."""
        self._switch.set_state(self._port, DISABLED)

    def restore(self) -> None:
        self._switch.set_state(self._port, FORWARDING)

    def lose_power(self) -> None:
        """All its processes end at once, and its peers hear nothing of it."""
        self.cut()
        self.switch_off()

    def switch_off(self) -> None:
        """All its processes end at once."""
        if self._machine is not None:
            self._machine.close()
            self._machine = None
            self._switch.pull_out(self._port)

    def path(self, path: Path | str) -> Path:
        """A file as this host sees it, through its own mounts."""
        return Path(f"/proc/{self.machine.init}/root{path}") if self._machine else Path(path)

    @contextlib.contextmanager
    def with_small_runs(self) -> Iterator[Path]:
        """`~/scaleout/runs` on a file system of its own that holds RUNS_BYTES."""
        runs = self.home / "scaleout" / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        machine = self.machine
        machine.call("mount", "-t", "tmpfs", "-o", f"size={RUNS_BYTES}", "runs", str(runs))
        try:
            yield runs
        finally:
            if machine is self._machine:  # else it went with the machine
                machine.call("umount", "--lazy", str(runs))

    def fill_runs(self) -> None:
        """Leaves no byte free there."""
        with (
            self.path(self.home / "scaleout" / "runs" / "ballast").open("ab", buffering=0) as ballast,
            contextlib.suppress(OSError),
        ):
            while ballast.write(b"\0" * 4096):
                pass

    @property
    def _port(self) -> str:
        # A name of its own each time: the kernel takes its time to remove a link.
        return f"port{self._number}-{self._boots}"

    @staticmethod
    def _kill(processes: list[Process]) -> None:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


@dataclass(frozen=True)
class Bed:
    """Hosts on one switch. The orchestrator runs beside them, in the switch's network."""

    folder: Path
    switch: Switch
    hosts: list[BedHost]

    def left(self) -> list[Process]:
        """Every process on any host that is not the machine's own or its sshd's: whatever it calls itself."""
        machines = [host.machine for host in self.hosts]
        own = {machine.init for machine in machines}
        found = processes_in([machine.pid_namespace for machine in machines])
        return [process for process in found if process.pid not in own and process.name not in ("sshd", "nsenter")]

    def on(self, host: BedHost) -> list[Process]:
        """The same of one host."""
        machine = host.machine
        found = processes_in([machine.pid_namespace])
        return [process for process in found if process.pid != machine.init and process.name != "sshd"]

    def mend(self) -> None:
        """All hosts are on, can be reached and are idle again, whatever was done to them."""
        for host in self.hosts:
            host.switch_off()
        for host in self.hosts:
            host.boot()


@contextlib.contextmanager
def made(folder: Path, count: int) -> Iterator[Bed]:
    """A bed of `node1` … in `folder`, while the block runs."""
    ensure_sshd(print)
    key_file = folder / "keys" / "login_ed25519"
    make_key(key_file)
    key = key_file.with_suffix(".pub").read_text().strip()
    switch = Switch(f"{SUBNET}.1")
    hosts: list[BedHost] = []
    try:
        for number in range(1, count + 1):
            name = f"node{number}"
            home = folder / name / "home"
            files = Host(
                name, folder / name, SSH_PORT, key, settings.node_python().parent, {"TMPDIR": str(home / "tmp")},
                f"{SUBNET}.{number + 10}",
            )  # fmt: skip
            hosts.append(BedHost(files, number, switch, key_file))
            hosts[-1].boot()
        yield Bed(folder, switch, hosts)
    finally:
        for host in hosts:
            host.switch_off()
        switch.close()


def ssh(bed: Bed, host: BedHost, *command: str) -> subprocess.CompletedProcess[str]:
    """OpenSSH's client, from beside the hosts."""
    return subprocess.run(ssh_command(bed, host, *command), stdin=subprocess.DEVNULL, capture_output=True, text=True)


def ssh_command(bed: Bed, host: BedHost, *command: str) -> list[str]:
    target = host.target
    known = bed.folder / "known_hosts"
    known.write_text("".join(f"{one.address} {one.files.host_key}\n" for one in bed.hosts))
    options = ["BatchMode=yes", "ConnectTimeout=5", f"UserKnownHostsFile={known}", f"IdentityFile={target.key_file}"]
    flags = [part for option in options for part in ("-o", option)]
    return in_network(bed.switch.pid, ["ssh", *flags, f"{target.user}@{target.host}", *command])
