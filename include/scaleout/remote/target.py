"""Where a connection leads: the host, the login, the keys. Built from an Airflow connection's fields."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from scaleout.errors import ConfigError

SSH_PORT = 22
ADVICE = (
    "`scaleout cluster up` writes those of the cluster `local`; "
    "those of yours go into a file that SCALEOUT_CONNECTIONS_FILE names"
)


@dataclass(frozen=True)
class Target:
    """An SSH destination. `host_key` is "ssh-ed25519 AAAA…"; without it `~/.ssh/known_hosts` must know the host."""

    name: str
    host: str
    port: int
    user: str | None
    key_file: str | None
    host_key: str | None
    private_key: str | None = field(default=None, repr=False)
    passphrase: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)


def target_of(
    name: str, *, host: str | None, port: int | None, login: str | None, password: str | None, extra: dict[str, Any]
) -> Target:
    """The target of an Airflow SSH connection. Raises ConfigError."""
    if not host:
        raise ConfigError(f"{name}: its connection has no host")
    if str(extra.get("no_host_key_check", "")).lower() == "true":
        raise ConfigError(f"{name}: its connection turns host key checking off; give its host_key instead")
    return Target(
        name=name,
        host=host,
        port=port or SSH_PORT,
        user=login,
        key_file=extra.get("key_file"),
        host_key=extra.get("host_key"),
        private_key=extra.get("private_key"),
        passphrase=extra.get("private_key_passphrase"),
        password=password,
    )


def target_from_file(path: Path, connection: str, name: str) -> Target:
    """The target of a connection in the JSON file that Airflow's LocalFilesystemBackend reads. Raises ConfigError."""
    connections = connections_in(path)
    if connection not in connections:
        raise ConfigError(f"{path}: no connection {connection!r}; {ADVICE}")
    try:
        fields = _fields(connections[connection])
    except ValueError as error:
        raise ConfigError(f"{path}: the connection {connection!r} cannot be understood: {error}") from None
    return target_of(name, **fields)


def connections_in(path: Path) -> dict[str, Any]:
    """What the file says of each connection, by name. Raises ConfigError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; {ADVICE}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON: {error}; mend it, or remove it") from None
    return document if isinstance(document, dict) else {}


def _fields(connection: Any) -> dict[str, Any]:
    """What `target_of` asks for, of a connection in any form that Airflow takes: a mapping whose `extra` is a mapping or
    JSON text, a URI, a list of one. Raises ValueError."""
    if isinstance(connection, list) and len(connection) == 1:
        (connection,) = connection
    if isinstance(connection, str):
        connection = _of_uri(connection)
    if not isinstance(connection, dict):
        raise ValueError("it is neither a mapping nor a URI")
    extra = connection.get("extra") or {}
    if isinstance(extra, str):
        extra = json.loads(extra)
    if not isinstance(extra, dict):
        raise ValueError("its extra is no mapping")
    port = connection.get("port")
    return {
        **{key: connection.get(key) for key in ("host", "login", "password")},
        "port": None if port in (None, "") else int(port),
        "extra": extra,
    }


def _of_uri(uri: str) -> dict[str, Any]:
    """`ssh://login:password@host:22/?key_file=…&host_key=…`, or with all of the extra as JSON in `__extra__`."""
    parts = urlsplit(uri)
    extra = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        "host": unquote(parts.hostname or ""),
        "port": parts.port,
        "login": unquote(parts.username or "") or None,
        "password": unquote(parts.password or "") or None,
        "extra": json.loads(extra["__extra__"]) if "__extra__" in extra else extra,
    }
