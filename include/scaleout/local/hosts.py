"""One SSH host, by default on a loopback port: its own host key, home and log, key authentication only."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from scaleout.errors import ScaleoutError
from scaleout.local.files import keep_file
from scaleout.local.ports import ADDRESS, refuse_taken
from scaleout.local.processes import end, with_descendants

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
START_LIMIT_S = 10.0
STOP_LIMIT_S = 5.0


@dataclass(frozen=True)
class Host:
    """A host in `folder`; `path` stands first on its logins' PATH; `environment` is added to theirs."""

    name: str
    folder: Path
    port: int
    authorized_key: str
    path: Path
    environment: dict[str, str] = field(default_factory=dict)
    address: str = ADDRESS

    @property
    def home(self) -> Path:
        return self.folder / "home"

    @property
    def host_key(self) -> str:
        """The public host key, `ssh-ed25519 AAAA…`."""
        return " ".join((self.folder / "ssh_host_ed25519_key.pub").read_text().split()[:2])

    @property
    def config(self) -> Path:
        return self.folder / "sshd_config"

    @property
    def _log(self) -> Path:
        return self.folder / "sshd.log"

    def start(self) -> None:
        """Starts the daemon unless it runs. Raises ScaleoutError."""
        if self.daemon() is not None:
            return
        self.prepare()
        self._refuse_taken_port()
        done = subprocess.run(
            [str(sshd_program()), "-f", str(self.config), "-E", str(self._log)],
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode != 0:
            raise ScaleoutError(f"host {self.name}: sshd did not start: {done.stderr.strip() or f'see {self._log}'}")
        self._wait_for_banner()

    def prepare(self) -> None:
        """Its home, keys and the daemon's settings."""
        self.home.mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        make_key(self.folder / "ssh_host_ed25519_key")
        keep_file(self.folder / "authorized_keys", self.authorized_key + "\n")
        keep_file(self.config, self._config_text())

    def stop(self) -> None:
        """Ends the daemon and the sessions that it serves, nothing else."""
        daemon = self.daemon()
        if daemon is None:
            return
        end(with_descendants(daemon), signal.SIGTERM, STOP_LIMIT_S)
        (self.folder / "sshd.pid").unlink(missing_ok=True)

    def daemon(self) -> psutil.Process | None:
        """The running daemon: the process of the pid file, if it is really ours."""
        try:
            process = psutil.Process(int((self.folder / "sshd.pid").read_text()))
            # In its command line sshd spells some characters otherwise.
            ours = str(self.config) in " ".join(process.cmdline())
            return process if ours or str(self._log) in [file.path for file in process.open_files()] else None
        except (OSError, ValueError, psutil.Error):
            return None

    def _refuse_taken_port(self) -> None:
        """sshd itself goes into the background before it finds that it cannot listen, and exits with 0."""
        ports = self.folder.parent / "ports.json"
        refuse_taken(self.port, f"host {self.name}", f"remove {ports} for other ports")

    def _wait_for_banner(self) -> None:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            try:
                with socket.create_connection((ADDRESS, self.port), timeout=1) as probe:
                    if probe.recv(8).startswith(b"SSH-2.0"):
                        return
            except OSError:
                time.sleep(0.05)
        raise ScaleoutError(f"host {self.name}: sshd does not answer on {ADDRESS}:{self.port}; see {self._log}")

    def _config_text(self) -> str:
        environment = {"HOME": str(self.home), "PATH": f"{self.path}:{SYSTEM_PATH}", **self.environment}
        settings = {
            "Port": str(self.port),
            "ListenAddress": self.address,
            "HostKey": _quoted(self.folder / "ssh_host_ed25519_key"),
            "PidFile": _quoted(self.folder / "sshd.pid"),
            "AuthorizedKeysFile": _quoted(str(self.folder / "authorized_keys").replace("%", "%%")),
            # The folder is ours and closed to others, but it may lie below /tmp, which StrictModes refuses.
            "StrictModes": "no",
            "AllowUsers": pwd.getpwuid(os.getuid()).pw_name,
            "PermitRootLogin": "prohibit-password",
            "AuthenticationMethods": "publickey",
            "PasswordAuthentication": "no",
            "KbdInteractiveAuthentication": "no",
            "UsePAM": "no",
            "MaxStartups": "100:30:200",
            "AllowTcpForwarding": "no",
            "AllowAgentForwarding": "no",
            "X11Forwarding": "no",
            "PermitTunnel": "no",
            "PrintMotd": "no",
            "SetEnv": " ".join(_quoted(f"{name}={value}") for name, value in environment.items()),
        }
        return "".join(f"{key} {value}\n" for key, value in settings.items())


def sshd_program() -> Path:
    found = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:{SYSTEM_PATH}")
    if not found:
        raise ScaleoutError("sshd is not installed: apt-get install openssh-server")
    return Path(found)


def make_key(path: Path) -> None:
    """An ed25519 key pair at `path` and `path`.pub, unless there."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.parent.chmod(0o700)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "scaleout", "-f", str(path)], check=True)


def _quoted(value: str | Path) -> str:
    text = str(value)
    if '"' in text or "\n" in text:
        raise ScaleoutError(
            f"{text!r}: a path with a quote or a line break cannot stand in sshd_config; use another folder"
        )
    return f'"{text}"'
