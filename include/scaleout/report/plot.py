"""Images/s against ranks, as SVG text."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Sequence

from scaleout.analysis.row import Row


def scaling_svg(rows: Sequence[Row]) -> str | None:
    """One line per workload and cache mode (medians over rounds, every round a dot), linear scaling dashed.

    None when no row has a rate.
    """
    from matplotlib.figure import Figure

    series: dict[tuple[str, str], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.images_per_s is not None:
            series[(row.workload, row.cache_mode)][row.ranks].append(row.images_per_s)
    if not series:
        return None
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    for (workload, cache_mode), points in sorted(series.items()):
        ranks = sorted(points)
        medians = [_median(points[n]) for n in ranks]
        (line,) = axes.plot(ranks, medians, marker="o", label=f"{workload}, {cache_mode}")
        for n in ranks:
            axes.plot([n] * len(points[n]), points[n], ".", color=line.get_color(), alpha=0.5)
        linear = [medians[0] * n / ranks[0] for n in ranks]
        axes.plot(ranks, linear, "--", color=line.get_color(), alpha=0.5, linewidth=1, label=f"{workload}, linear")
    axes.set_xlabel("GPUs" if all(row.gpus for row in rows if row.images_per_s is not None) else "ranks (on CPU)")
    axes.set_ylabel("images/s")
    axes.set_xticks(sorted({n for points in series.values() for n in points}))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    return text[text.index("<svg") :]


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
