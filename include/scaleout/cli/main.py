"""The command line: `scaleout cluster|stack|demo|one-host|show|plan|data|lock|processes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from scaleout import settings
from scaleout.cli import data, one_host, stack
from scaleout.cli import demo as demonstration
from scaleout.cli.conf import Conf, form_of
from scaleout.cli.ends import run_in_words
from scaleout.cli.fleet import Answers, lock_holders, lock_taken_away, marked_processes
from scaleout.config import files
from scaleout.local.cluster import local_cluster
from scaleout.plan.resolve import resolve
from scaleout.plan.table import describe
from scaleout.remote.lock import since
from scaleout.report.html import REPORT_FILE
from scaleout.report.table import notes, text_table
from scaleout.results.read import rows_of
from training.wire.names import slug

app = typer.Typer(
    help="Measures how training scales on a GPU cluster with a shared NAS.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cluster_app = typer.Typer(help="The small cluster of SSH hosts on this machine.", no_args_is_help=True)
lock_app = typer.Typer(help="The lock that a sweep holds on the nodes.", no_args_is_help=True)
app.command("one-host")(one_host.one_host)
app.add_typer(cluster_app, name="cluster")
app.add_typer(stack.app, name="stack")
app.add_typer(data.app, name="data")
app.add_typer(lock_app, name="lock")


@cluster_app.command("up")
def cluster_up() -> None:
    """Start the local cluster's hosts and write their connections."""
    local_cluster(files.load_cluster("local")).up(typer.echo)


@cluster_app.command("down")
def cluster_down() -> None:
    """Stop the local cluster's hosts; keys, ports and data stay."""
    local_cluster(files.load_cluster("local")).down(typer.echo)


@app.command()
def demo() -> None:
    """Run the quick sweep on the local cluster, through `airflow dags test`."""
    raise typer.Exit(demonstration.run(typer.echo))


@app.command()
def plan(conf: Conf = "{}") -> None:
    """Print the trials that a form asks for and the hours that they take. Runs nothing."""
    cluster = files.load_cluster(settings.cluster_name())
    typer.echo(describe(resolve(run_id="plan", conf=form_of(conf), cluster=cluster, created_at="not started")))


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="a run_id, a folder of the results, `latest`, or a path")] = "latest",
) -> None:
    """Print the scaling table of a sweep and the path of its report."""
    places = [settings.results_dir() / run, settings.results_dir() / slug(run), Path(run).resolve()]
    folder = next((place for place in places if place.is_dir()), places[0])
    rows, missing = rows_of(folder)
    typer.echo("\n".join([text_table(rows, demonstration.terminal_width()), *notes(rows)]))
    for line in missing:
        typer.echo(f"missing: {line}")
    typer.echo(f"report: {(folder / REPORT_FILE).resolve()}")


@lock_app.command("show")
def lock_show() -> None:
    """Who holds the cluster's nodes, and since when there was no sign of life; exit status 1 where that is not known."""
    _show_locks(lock_holders())


def _show_locks(answers: Answers) -> None:
    for name, answer in answers.by_node.items():
        typer.echo(f"{name}: {_lock_state(answer)}")
    _tell_problems(answers)
    if any(answer["damaged"] for answer in answers.by_node.values()):
        raise typer.Exit(1)


def _tell_problems(answers: Answers) -> None:
    for problem in answers.problems:
        typer.echo(f"scaleout: {problem}", err=True)
    if answers.problems:
        raise typer.Exit(1)


def _lock_state(answer: dict[str, Any]) -> str:
    if answer["damaged"]:
        return "damaged; when no sweep runs, `scaleout lock break` frees it"
    by = answer["by"]
    if by is None:
        return "free"
    lately = f"{answer['age_s']:.0f} s ago" + (", so it is free" if answer["age_s"] > by["ttl_s"] else "")
    return (
        f"{by['run_id']} ({by['owner']} on {by['host']}, pid {by['pid']}) since {since(by)}, last sign of life {lately}"
    )


@lock_app.command("break")
def lock_break() -> None:
    """Take the lock away from whoever holds it; a damaged lock file too."""
    _show_locks(lock_taken_away())


@app.command()
def processes(run_id: Annotated[str, typer.Argument(help="the run_id of a sweep")]) -> None:
    """List the processes of a run on every node; exit status 1 if there are any."""
    answers = marked_processes(run_id)
    for name, answer in answers.by_node.items():
        typer.echo(f"{name}: {len(answer['processes'])} processes of {run_id}")
        for process in answer["processes"]:
            typer.echo(f"  {process['pid']}: {process['command']}")
    _tell_problems(answers)
    raise typer.Exit(int(any(answer["processes"] for answer in answers.by_node.values())))


def main() -> None:
    run_in_words(lambda: app(prog_name="scaleout"))
