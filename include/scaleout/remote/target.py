"""Where a connection leads: the host, the login, the keys. Built from an Airflow connection's fields."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scaleout.errors import ConfigError

SSH_PORT = 22


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
    try:
        document = json.loads(path.read_text(encoding="utf-8"))[connection]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; `scaleout cluster up` writes it") from None
    except (ValueError, KeyError) as error:
        raise ConfigError(f"{path}: no connection {connection!r}: {error!r}") from None
    return target_of(
        name,
        host=document.get("host"),
        port=document.get("port"),
        login=document.get("login"),
        password=document.get("password"),
        extra=document.get("extra", {}),
    )
