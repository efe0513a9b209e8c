"""`report.html`: one file that opens offline."""

from __future__ import annotations

from pathlib import Path

from scaleout.config.form import length_text
from scaleout.report.plot import scaling_svg
from scaleout.report.table import cells, dataset_text, headings, notes
from scaleout.results.compile import Results
from scaleout.results.store import SweepStore, write_text

REPORT_FILE = "report.html"


def write_report(store: SweepStore, results: Results) -> Path:
    """Writes the report of a sweep beside its results, and gives its path."""
    from jinja2 import Environment, PackageLoader, select_autoescape  # not above: the DAG's parser imports this module
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("scaleout.report", "."),
        autoescape=select_autoescape(default=True, default_for_string=True),
    )
    svg = scaling_svg(results.rows)
    page = environment.get_template("report.html.j2").render(
        sweep=results.sweep,
        rows=results.rows,
        missing=results.missing,
        headings=headings(results.sweep.axis),
        cells=cells,
        dataset_text=dataset_text,
        notes=notes(results.rows),
        length=" or ".join(dict.fromkeys(length_text(trial.length) for trial in results.sweep.trials)),
        # Drawn by matplotlib from numbers and validated names, so it is markup already.
        plot=Markup(svg) if svg else None,  # noqa: S704
    )
    path = store.folder / REPORT_FILE
    write_text(path, page)
    return path
