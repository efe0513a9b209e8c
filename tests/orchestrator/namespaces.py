"""Network namespaces for the tests: interfaces, addresses and a hosts file of their own. They need root."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Self


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Namespace:
    """A node's network, with its loopback up, while the `with` block runs."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Self:
        ip("netns", "add", self.name)
        self.up("lo")
        return self

    def __exit__(self, *_: object) -> None:
        ip("netns", "del", self.name)
        if self._hosts.exists():
            self._hosts.unlink()
            self._hosts.parent.rmdir()

    @property
    def command(self) -> list[str]:
        """What stands before a program that shall run in it."""
        return ["ip", "netns", "exec", self.name]

    @property
    def _hosts(self) -> Path:
        return Path("/etc/netns") / self.name / "hosts"

    def link(self, interface: str, other: Namespace, others_interface: str) -> None:
        """A cable between the two."""
        peer = ["peer", "name", others_interface, "netns", other.name]
        ip("link", "add", interface, "netns", self.name, "type", "veth", *peer)

    def add_bridge(self, interface: str, *addresses: str) -> None:
        ip("-n", self.name, "link", "add", interface, "type", "bridge")
        self.up(interface, *addresses)

    def up(self, interface: str, *addresses: str) -> None:
        for address in addresses:
            ip("-n", self.name, "addr", "add", address, "dev", interface, *(["nodad"] if ":" in address else []))
        ip("-n", self.name, "link", "set", interface, "up")

    def wait_for_carrier(self, interface: str) -> None:
        """The kernel notices both ends of a cable a moment after they are up."""
        deadline = time.monotonic() + 10
        show = ["ip", "-n", self.name, "-json", "link", "show", interface]
        while json.loads(subprocess.run(show, capture_output=True, check=True).stdout)[0]["operstate"] != "UP":
            assert time.monotonic() < deadline, f"{interface} of {self.name} has no carrier"
            time.sleep(0.02)

    def knows(self, *lines: str) -> None:
        """What stands in its /etc/hosts."""
        self._hosts.parent.mkdir(parents=True, exist_ok=True)
        self._hosts.write_text("".join(f"{line}\n" for line in lines))
