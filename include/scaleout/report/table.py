"""The scaling table, as text for a terminal and as cells for the HTML."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from scaleout.analysis.row import Row
from training.wire.names import Axis

DASH = "–"
MB = 10**6

LEFT = ("workload", "cache", "loader", "status")
CO_LOCATED = {
    "nodes": "Nodes of a trial shared one machine (same boot id): their scaling efficiency is not meaningful.",
    "processes": "Processes of a trial shared the cores of one machine: their scaling efficiency is not meaningful.",
}


def headings(axis: Axis) -> list[str]:
    """The columns of a sweep's table, by what it counts."""
    return list(_ON_NODES if axis == "nodes" else _on_one_host(axis))


def cells(row: Row) -> list[str]:
    """The texts of a row, under the headings of its axis."""
    return [text(row) for text in (_ON_NODES if row.axis == "nodes" else _on_one_host(row.axis)).values()]


def _cache(row: Row) -> str:
    return row.cache_state if row.cache_state == row.cache_mode else f"{row.cache_mode}? {row.cache_state}"


def _data_wait(row: Row) -> str:
    return percent(row.waiting_per_step_s / row.step_s if row.waiting_per_step_s is not None and row.step_s else None)


_ON_NODES: dict[str, Callable[[Row], str]] = {
    "workload": lambda row: row.workload,
    "nodes": lambda row: str(row.nodes),
    "ranks": lambda row: str(row.ranks),
    "round": lambda row: str(row.round),
    "cache": _cache,
    "batch/GPU": lambda row: str(row.batch_per_gpu),
    "images/s": lambda row: number(row.images_per_s, 3),
    "per rank": lambda row: number(row.images_per_s_per_rank, 3),
    "speed-up": lambda row: number(row.speedup, 2),
    "efficiency": lambda row: efficiency(row),
    "of synthetic": lambda row: percent(row.utilisation),
    "first batch s": lambda row: number(row.time_to_first_batch_s, 2),
    "data wait": _data_wait,
    "needs MB/s": lambda row: scaled(row.required_bytes_per_s, 1 / MB, 2),
    "read MB/s": lambda row: scaled(row.measured_read_bytes_per_s, 1 / MB, 2),
    "status": lambda row: row.status,
}


def _on_one_host(axis: Axis) -> dict[str, Callable[[Row], str]]:
    """Neither nodes nor an array, but what a step is made of."""
    what, each = ("GPUs", "per GPU") if axis == "gpus" else (str(axis), "per process")
    return {
        "workload": lambda row: row.workload,
        what: lambda row: str(row.ranks),
        "round": lambda row: str(row.round),
        "loader": lambda row: row.loader or DASH,
        "batch/GPU": lambda row: str(row.batch_per_gpu),
        "images/s": lambda row: number(row.images_per_s, 1),
        each: lambda row: number(row.images_per_s_per_rank, 1),
        "speed-up": lambda row: number(row.speedup, 2),
        "efficiency": lambda row: efficiency(row, 1),
        "of synthetic": lambda row: percent(row.utilisation),
        "step ms": lambda row: scaled(row.step_s, 1000, 1),
        "compute": lambda row: scaled(row.compute_per_step_s, 1000, 1),
        "communication": lambda row: scaled(row.communication_per_step_s, 1000, 1),
        "waiting": lambda row: scaled(row.waiting_per_step_s, 1000, 1),
        "status": lambda row: row.status,
    }


def text_table(rows: Sequence[Row], width: int) -> str:
    """The table drawn with lines, `width` columns wide at most."""
    table = Table(show_edge=False, pad_edge=False)
    for heading in headings(rows[0].axis if rows else "nodes"):
        table.add_column(heading, justify="left" if heading in LEFT else "right", no_wrap=False)
    for _, of_workload in groupby(rows, lambda row: row.workload):
        for row in of_workload:
            table.add_row(*cells(row))
        table.add_section()
    console = Console(width=width, no_color=True, highlight=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip()


def notes(rows: Sequence[Row]) -> list[str]:
    """What a reader of the table must know, each said once."""
    found = []
    found += dict.fromkeys(CO_LOCATED[row.axis] for row in rows if row.co_located)
    if any(not row.gpus and row.images_per_s is not None for row in rows):
        found.append("No GPU: each rank ran on the CPU in a GPU's place.")
    found += [
        f"{workload}, not as published: {'; '.join(f'{name} {text}' for name, text in overrides.items())}."
        for workload, overrides in _overrides(rows).items()
        if overrides
    ]
    found += dict.fromkeys(f"{row.workload}, data set: {text}." for row in rows if (text := dataset_text(row)))
    if any(row.step_s is not None and row.axis != "nodes" for row in rows):
        found.append(
            "Of a step, in ms: compute is that of the single rank of the same round, waiting is what passed between the "
            "steps, and communication is the rest: what compute did not hide."
        )
    for row in rows:
        found += [f"{row.key}: {note}." for note in row.notes]
        if "cache_state" in row.reasons and row.status == "succeeded" and row.loader != "synthetic":
            found.append(f"{row.key}: cache state {row.cache_state}, since {row.reasons['cache_state']}.")
    return found


def dataset_text(row: Row) -> str:
    """The data set of a trial's workload as it was prepared; nothing where that is not known."""
    data = row.provenance.get("dataset")
    if not data or "factor" not in data:
        return ""
    made = f"each frame {data['factor']} times, {data['method']}, {data['format']}, seed {data['seed']}"
    return (
        f"{data['images']:,} images of {data['mean_image_bytes'] / MB:.2f} MB "
        f"({'the frames themselves' if data['factor'] == 1 else made}), manifest {data['manifest_sha256'][:12]}"
    )


def _overrides(rows: Sequence[Row]) -> dict[str, dict[str, str]]:
    """Of each workload. Trials of a sweep differ only in what a failed one could not tell."""
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        found.setdefault(row.workload, {}).update(row.overrides)
    return found


def efficiency(row: Row, digits: int = 0) -> str:
    if row.co_located:
        return "n.m."
    return percent(row.scaling_efficiency, digits)


def scaled(value: float | None, factor: float, digits: int) -> str:
    return number(None if value is None else value * factor, digits)


def number(value: float | None, digits: int) -> str:
    return DASH if value is None else f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 0) -> str:
    return DASH if value is None else f"{value:.{digits}%}"
