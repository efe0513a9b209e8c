"""The scaling table, as text for a terminal and as cells for the HTML."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import Console
from rich.table import Table

from scaleout.analysis.row import Row

DASH = "–"
MB = 10**6

HEADINGS = (
    "workload", "nodes", "ranks", "round", "cache", "batch/GPU", "images/s", "per rank", "speed-up", "efficiency",
    "of synthetic", "first batch s", "data wait", "needs MB/s", "read MB/s", "status",
)  # fmt: skip


def cells(row: Row) -> list[str]:
    """The texts of a row, under HEADINGS."""
    return [
        row.workload,
        str(row.nodes),
        str(row.ranks),
        str(row.round),
        row.cache_state if row.cache_state == row.cache_mode else f"{row.cache_mode}? {row.cache_state}",
        str(row.batch_per_gpu),
        number(row.images_per_s, 3),
        number(row.images_per_s_per_rank, 3),
        number(row.speedup, 2),
        efficiency(row),
        percent(row.utilisation),
        number(row.time_to_first_batch_s, 2),
        percent(row.host_data_wait_s / row.window_s if row.host_data_wait_s is not None and row.window_s else None),
        number(row.required_bytes_per_s / MB if row.required_bytes_per_s is not None else None, 2),
        number(row.measured_read_bytes_per_s / MB if row.measured_read_bytes_per_s is not None else None, 2),
        row.status,
    ]


def text_table(rows: Sequence[Row], width: int) -> str:
    """The table drawn with lines, `width` columns wide at most."""
    table = Table(show_edge=False, pad_edge=False)
    for heading in HEADINGS:
        table.add_column(
            heading, justify="left" if heading in ("workload", "cache", "status") else "right", no_wrap=False
        )
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
    if any(row.co_located for row in rows):
        found.append("Nodes of a trial shared one machine (same boot id): their scaling efficiency is not meaningful.")
    if any(not row.gpus and row.images_per_s is not None for row in rows):
        found.append("No GPU: each rank ran on the CPU in a GPU's place.")
    found += [
        f"{workload}, not as published: {'; '.join(f'{name} {text}' for name, text in overrides.items())}."
        for workload, overrides in _overrides(rows).items()
        if overrides
    ]
    found += dict.fromkeys(f"{row.workload}, data set: {text}." for row in rows if (text := dataset_text(row)))
    for row in rows:
        found += [f"{row.key}: {note}." for note in row.notes]
        if "cache_state" in row.reasons and row.status == "succeeded":
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


def efficiency(row: Row) -> str:
    if row.co_located:
        return "n.m."
    return percent(row.scaling_efficiency)


def number(value: float | None, digits: int) -> str:
    return DASH if value is None else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    return DASH if value is None else f"{value:.0%}"
