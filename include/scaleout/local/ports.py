"""Ports of this machine's loopback address."""

from __future__ import annotations

import socket

from scaleout.errors import ScaleoutError

ADDRESS = "127.0.0.1"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return int(probe.getsockname()[1])


def refuse_taken(port: int, who: str, remedy: str) -> None:
    """Raises ScaleoutError when something listens on the port already."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError as error:
            raise ScaleoutError(
                f"{who}: cannot listen on {ADDRESS}:{port} ({error.strerror}): stop the program that does, or {remedy}"
            ) from None
