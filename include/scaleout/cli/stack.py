"""`scaleout stack`: Airflow's UI and scheduler on this machine."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from scaleout import settings
from scaleout.local.stack import local_stack

app = typer.Typer(help="Airflow's UI and scheduler on this machine, on loopback ports.", no_args_is_help=True)


class Database(StrEnum):
    postgresql = "postgresql"
    sqlite = "sqlite"


@app.command("up")
def up(
    database: Annotated[
        Database | None, typer.Option(help="a private server, or one file; default: as before, at first postgresql")
    ] = None,
) -> None:
    """Start api-server, scheduler, dag-processor and database, and wait until they are well."""
    local_stack().up(database.value if database else None, typer.echo)
    if settings.cluster_name() == "local" and not settings.connections_file().exists():
        typer.echo("the local cluster's hosts are not up, and sweeps need them: `scaleout cluster up`")


@app.command("down")
def down() -> None:
    """Stop all of it, and a sweep that runs; data, ports and password stay."""
    local_stack().down(typer.echo)


@app.command("status")
def status() -> None:
    """Say of each part whether it is well; exit status 1 unless all are."""
    stack = local_stack()
    parts = stack.status()
    for part in parts:
        number = f" (pid {part.pid})" if part.pid else ""
        typer.echo(f"{part.name}{number}: {part.problem or 'well'}")
    typer.echo(f"UI: {stack.url}" if parts else "the stack is down")
    raise typer.Exit(int(not parts or any(part.problem for part in parts)))
