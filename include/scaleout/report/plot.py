"""Images/s against ranks, as SVG text."""

from __future__ import annotations

import importlib.util
import io
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from scaleout.analysis.row import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def scaling_svg(rows: Sequence[Row]) -> str | None:
    """A plot per workload, side by side, as their rates are far apart; None when no row has a rate, or there is no matplotlib.

    One line per cache mode, on one host per loader (medians over rounds, every round a dot), linear scaling dashed.
    """
    if importlib.util.find_spec("matplotlib") is None:  # a machine that only trains
        return None
    from matplotlib.figure import Figure

    measured = [row for row in rows if row.images_per_s is not None]
    workloads = sorted({row.workload for row in measured})
    if not workloads:
        return None
    figure = Figure(figsize=(7.5 * len(workloads), 4.2), layout="constrained")
    for axes, workload in zip(figure.subplots(1, len(workloads), squeeze=False)[0], workloads, strict=True):
        _draw(axes, [row for row in measured if row.workload == workload])
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _draw(axes: Axes, rows: Sequence[Row]) -> None:
    """The rates of one workload."""
    series: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.images_per_s is not None:
            series[row.cache_mode if row.axis == "nodes" else row.loader or "measured"][row.ranks].append(
                row.images_per_s
            )
    for name, points in sorted(series.items()):
        ranks = sorted(points)
        medians = [_median(points[n]) for n in ranks]
        (line,) = axes.plot(ranks, medians, marker="o", label=name)
        for n in ranks:
            axes.plot([n] * len(points[n]), points[n], ".", color=line.get_color(), alpha=0.5)
        linear = [medians[0] * n / ranks[0] for n in ranks]
        axes.plot(ranks, linear, "--", color=line.get_color(), alpha=0.5, linewidth=1, label=f"{name}, linear")
    axes.set_title(rows[0].workload)
    axes.set_xlabel("GPUs" if all(row.gpus for row in rows) else "ranks (on CPU)")
    axes.set_ylabel("images/s")
    axes.set_xticks(sorted({row.ranks for row in rows}))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
