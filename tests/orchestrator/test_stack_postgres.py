"""The stack's private PostgreSQL: a real server in a folder that its user may not enter."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg2
import pytest

from scaleout.errors import ScaleoutError
from scaleout.local.ports import ADDRESS, free_port
from scaleout.local.postgres import Postgres
from scaleout.local.processes import Daemon, runs

PASSWORD = "right"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    folder = tmp_path_factory.mktemp("closed to others; 100%")
    folder.chmod(0o700)
    made = Postgres(folder / "data", free_port(), Daemon("postgresql", folder))
    try:
        made.start(PASSWORD, print)
        yield made
    finally:
        made.stop()


def query(server: Postgres, statement: str, **login: str) -> list[tuple[object, ...]]:
    who = {"user": "airflow", "dbname": "airflow", "password": PASSWORD, **login}
    connection = psycopg2.connect(host=ADDRESS, port=server.port, **who)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def test_its_owner_gets_in_with_the_password_and_nobody_else_does(server: Postgres) -> None:
    assert query(server, "SELECT current_user, current_database()") == [("airflow", "airflow")]
    for login in ({"password": "wrong"}, {"user": "postgres"}, {"dbname": "postgres"}):
        with pytest.raises(psycopg2.OperationalError, match=r"authentication failed|no pg_hba\.conf entry"):
            query(server, "SELECT 1", **login)


def test_it_listens_on_one_loopback_port_and_on_no_socket(server: Postgres) -> None:
    pids = {process.pid for process in server.daemon.family()}
    open_ports = [
        c for c in psutil.net_connections("all") if c.pid in pids and c.status in ("LISTEN", "NONE") and c.laddr
    ]
    assert {tuple(connection.laddr) for connection in open_ports} == {(ADDRESS, server.port)}


def test_it_never_runs_as_root(server: Postgres) -> None:
    owners = {process.uids().effective for process in server.daemon.family()}
    assert owners == {server.folder.stat().st_uid}
    assert 0 not in owners


def test_its_data_outlives_a_stop_that_leaves_no_process(server: Postgres) -> None:
    query(server, "CREATE TABLE kept AS SELECT 7 AS number")
    family = server.daemon.family()
    server.stop()
    assert not list(filter(runs, family))
    server.start("another password changes nothing", print)
    assert query(server, "SELECT number FROM kept") == [(7,)]


def test_a_port_that_is_taken_is_told(server: Postgres) -> None:
    server.stop()
    with socket.create_server((ADDRESS, server.port)), pytest.raises(ScaleoutError, match="Address already in use"):
        server.start(PASSWORD, print)
    server.start(PASSWORD, print)


def test_a_strangers_process_with_the_number_of_a_dead_one_is_not_ours(tmp_path: Path) -> None:
    daemon = Daemon("postgresql", tmp_path)
    daemon.pid_file.write_text(f"{os.getpid()} 1 another-boot\n")
    assert daemon.process() is None and daemon.has_died() and daemon.family() == []
