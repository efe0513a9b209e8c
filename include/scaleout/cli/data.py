"""`scaleout data`: the data sets as the nodes see them."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from scaleout import settings
from scaleout.cli.conf import Conf, form_of
from scaleout.config import files
from scaleout.errors import ConfigError
from scaleout.plan.resolve import resolve
from scaleout.plan.sweep import Sweep
from scaleout.remote import release
from scaleout.remote.fleet import connected
from scaleout.remote.target import target_from_file

DAMAGED = 1

app = typer.Typer(help="The data sets that sweeps read.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Makes `verify` a command of its own, where it is the only one."""


@app.command()
def verify(
    workload: Annotated[str | None, typer.Option(help="only this workload's")] = None,
    sample: Annotated[int | None, typer.Option(min=1, help="files to read of each data set")] = None,
    full: Annotated[bool, typer.Option("--full", help="read every file")] = False,
    drop: Annotated[bool, typer.Option("--drop", help="forget what is damaged: the next sweep makes it anew")] = False,
    conf: Conf = "{}",
) -> None:
    """Look for damage in the data sets that a sweep with this form reads, on the first node."""
    if sample is not None and full:
        raise ConfigError("--sample and --full exclude each other")
    form = form_of(conf) | ({"workloads": [workload]} if workload else {})
    cluster = files.load_cluster(settings.cluster_name())
    sweep = resolve(run_id="verify", conf=form, cluster=cluster, created_at="not started")
    options = ["--full"] if full else [] if sample is None else ["--sample", str(sample)]
    status = asyncio.run(_verified(sweep, [*options, *(["--drop"] if drop else [])]))
    if status == DAMAGED:
        typer.echo("or run the sweep again" if drop else "or `scaleout data verify … --drop`, and run the sweep again")
    raise typer.Exit(status)


async def _verified(sweep: Sweep, options: list[str]) -> int:
    """The exit status of the first data set that is not right, else 0. Raises FleetError, NodeError."""
    cluster = sweep.cluster
    target = target_from_file(settings.connections_file(), cluster.nodes[0].connection, cluster.nodes[0].name)
    async with connected([target], python=cluster.python, timeout_s=cluster.connect_timeout_s) as (node,):
        path = await release.deploy(node, cluster.remote_root, release.current_release(), release.pack())
        statuses = []
        for workload in sweep.workloads:
            data = node.path(sweep.prepared_path(workload))
            typer.echo(f"{workload}: {data} on {node.name}")
            command = [node.python, f"{path}/training/data/verify.py", "--data", data, *options]
            statuses.append(await node.follow(["env", "PYTHONUNBUFFERED=1", *command], _echo))
    return next(filter(None, statuses), 0)


def _echo(line: str) -> None:
    if not line.startswith("{"):  # the summary is for programs
        typer.echo(line)
