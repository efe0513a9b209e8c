"""The local cluster: the nodes of `clusters/local.yaml` and its array, as SSH hosts of this machine."""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scaleout import settings
from scaleout.config.cluster import Cluster, OneFS
from scaleout.errors import ScaleoutError
from scaleout.local import onefs
from scaleout.local.files import keep_file
from scaleout.local.hosts import Host, make_key
from scaleout.local.packages import install
from scaleout.local.ports import ADDRESS, free_port
from scaleout.remote.target import connections_in

Say = Callable[[str], None]


@dataclass(frozen=True)
class LocalCluster:
    """Its folder holds keys, hosts and `connections.json`; `nas` is the folder that every node sees as `~/nas`."""

    cluster: Cluster
    folder: Path
    nas: Path
    node_python: Path

    def up(self, say: Say) -> None:
        """Starts the hosts that do not run and writes their Airflow connections. Raises ScaleoutError."""
        ensure_sshd(say)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self.nas.mkdir(parents=True, exist_ok=True)
        hosts = self.hosts()
        for host in hosts.values():
            host.start()
            _link(host.home / "nas", self.nas)
        self._write_connections(hosts)
        ports = ", ".join(f"{host.name} on {ADDRESS}:{host.port}" for host in hosts.values())
        say(f"cluster {self.cluster.name} is up: {ports}")

    def down(self, say: Say) -> None:
        """Stops the hosts. Keys, ports and data stay."""
        if (self.folder / "ports.json").exists():
            for host in self.hosts().values():
                host.stop()
        say(f"cluster {self.cluster.name} is down")

    def hosts(self) -> dict[str, Host]:
        """The hosts by their connection's name."""
        login_key = self.folder / "keys" / "login_ed25519"
        make_key(login_key)
        authorized = login_key.with_suffix(".pub").read_text().strip()
        names = {node.connection: node.name for node in self.cluster.nodes}
        array = self.cluster.array
        if isinstance(array, OneFS):
            names[array.connection] = "array"
        ports = self._ports(sorted(names.values()))
        hosts = {}
        for connection, name in names.items():
            folder = self.folder / name
            if name == "array":
                path = self._array_programs(folder)
                hosts[connection] = Host(
                    name, folder, ports[name], authorized, path, {onefs.FOLDER_VARIABLE: str(folder)}
                )
            else:
                hosts[connection] = Host(name, folder, ports[name], authorized, self.node_python.parent)
        return hosts

    def _ports(self, names: list[str]) -> dict[str, int]:
        path = self.folder / "ports.json"
        ports: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
        for name in names:
            if name not in ports:
                ports[name] = free_port()
        keep_file(path, json.dumps(ports, indent=1) + "\n")
        return ports

    def _array_programs(self, folder: Path) -> Path:
        programs = folder / "bin"
        for name in ("isi_for_array", "isi_flush"):
            command = shlex.join([sys.executable, str(Path(onefs.__file__)), name])
            keep_file(programs / name, f'#!/bin/sh\nexec {command} "$@"\n', 0o755)
        return programs

    def _write_connections(self, hosts: dict[str, Host]) -> None:
        """The Airflow connections, in the form that its LocalFilesystemBackend reads; what others added stays."""
        user = pwd.getpwuid(os.getuid()).pw_name
        document = {
            connection: {
                "conn_type": "ssh",
                "host": ADDRESS,
                "port": host.port,
                "login": user,
                "extra": {"key_file": str(self.folder / "keys" / "login_ed25519"), "host_key": host.host_key},
            }
            for connection, host in hosts.items()
        }
        path = self.folder / "connections.json"
        others = connections_in(path) if path.exists() else {}
        keep_file(path, json.dumps(others | document, indent=1) + "\n", 0o600)


def local_cluster(cluster: Cluster) -> LocalCluster:
    """The local cluster in `$SCALEOUT_HOME`."""
    python = settings.node_python()
    if not python.exists():
        raise ScaleoutError(f"no training environment at {python}: run `make setup`")
    return LocalCluster(cluster, settings.home() / "cluster", settings.home() / "nas", python)


def ensure_sshd(say: Say) -> None:
    """Installs OpenSSH's server where it is missing and we may; the daemon that comes with it is not started."""
    if shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        install("openssh-server", what="sshd", size="2 MB", say=say)
    if os.getuid() == 0:
        # Where sshd runs as root it confines its unprivileged half here; Debian's service makes it at boot.
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() != target:
        link.unlink()
    if not link.is_symlink():
        link.symlink_to(target)
