"""`scaleout one-host`; also `python -m scaleout.cli.one_host`, on a machine without SSH and Airflow."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from scaleout import settings
from scaleout.cli.ends import run_in_words
from scaleout.config.model import validated
from scaleout.errors import ConfigError
from scaleout.onehost.host import Host
from scaleout.onehost.part import heeded
from scaleout.onehost.sweep import OneHostSweep, run_to_status
from scaleout.plan.one_host import WHERE, Request, plan
from scaleout.results.store import SWEEP_FILE, SweepStore

NAMED = "NAME=VALUE"


def one_host(
    flags: Annotated[list[str] | None, typer.Argument(help="after `--`: flags for the training programs")] = None,
    counts: Annotated[str, typer.Option(help="of GPUs, or of processes with --device cpu")] = "1,2,4,8",
    workloads: Annotated[str, typer.Option()] = "ssd,segmentation",
    loader: Annotated[str, typer.Option(help="synthetic, torch or dali")] = "synthetic",
    rounds: Annotated[int, typer.Option(min=1)] = 3,
    steps: Annotated[int, typer.Option(min=1)] = 100,
    window_steps: Annotated[int | None, typer.Option(min=1)] = None,
    warmup_steps: Annotated[int, typer.Option(min=0)] = 20,
    synthetic_steps: Annotated[int, typer.Option(min=0)] = 50,
    batch_per_gpu: Annotated[int | None, typer.Option(min=1, help="default: the workload's")] = None,
    num_workers: Annotated[int | None, typer.Option(min=1, help="default: the workload's")] = None,
    device: Annotated[str, typer.Option(help="cuda or cpu")] = "cuda",
    data: Annotated[list[str] | None, typer.Option(metavar="WORKLOAD=DIR", help="its prepared data set")] = None,
    env: Annotated[list[str] | None, typer.Option(metavar=NAMED, help="for the training programs")] = None,
    python: Annotated[str | None, typer.Option(help="the training environment's interpreter")] = None,
    out: Annotated[Path | None, typer.Option(help="a new folder for the results")] = None,
) -> None:
    """Sweep the GPUs of this host, without Airflow and SSH; Ctrl-C stops it and leaves no process."""
    document = {
        "counts": _listed("--counts", counts), "workloads": _listed("--workloads", workloads), "loader": loader,
        "rounds": rounds, "steps": steps, "window_steps": window_steps, "warmup_steps": warmup_steps,
        "synthetic_steps": synthetic_steps, "batch_per_gpu": batch_per_gpu, "num_workers": num_workers, "device": device,
        "data": {name: str(Path(path).resolve()) for name, path in _named("--data", data).items()},
        "environment": _named("--env", env), "flags": flags or [],
    }  # fmt: skip
    request = validated(Request, document, lambda _: WHERE)
    for path in request.data.values():
        if not Path(path).is_dir():
            raise ConfigError(f"--data: {path} is no folder")
    started = time.time()
    run_id = f"one-host-{time.strftime('%Y%m%dT%H%M%S', time.gmtime(started))}"
    store = SweepStore(run_id, out.resolve() if out else None)
    if (store.folder / SWEEP_FILE).exists():
        raise ConfigError(f"{store.folder} holds a sweep already: give another --out")
    own = settings.node_python()
    host = Host(settings.home() / "one-host", python or str(own if own.exists() else sys.executable))
    created_at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(started))
    sweep = plan(request, run_id=run_id, created_at=created_at, root=str(host.root), python=host.python)
    with heeded() as wish:
        status = run_to_status(OneHostSweep(store, sweep, host, typer.echo, wish))
    raise typer.Exit(status)


def _listed(flag: str, text: str) -> list[str]:
    values = [value.strip() for value in text.split(",")]
    if not all(values):
        raise ConfigError(f"{flag} {text!r}: give values with commas between them")
    return values


def _named(flag: str, pairs: list[str] | None) -> dict[str, str]:
    for pair in pairs or []:
        if not all(pair.partition("=")[::2]):
            raise ConfigError(f"{flag} {pair!r}: give {NAMED}")
    return dict(pair.split("=", 1) for pair in pairs or [])


def main() -> None:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(one_host)
    run_in_words(lambda: app(prog_name="scaleout one-host"))


if __name__ == "__main__":
    main()
