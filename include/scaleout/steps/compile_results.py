"""compile_results: the table, the files, and the verdict on what is missing."""

from __future__ import annotations

from collections.abc import Callable

from scaleout.errors import MissingResultsError
from scaleout.report.html import write_report
from scaleout.report.table import notes, text_table
from scaleout.results.compile import compile_results
from scaleout.results.store import SweepStore

TABLE_WIDTH = 190


def compile_sweep(store: SweepStore, say: Callable[[str], None]) -> None:
    """Writes results and report. Raises MissingResultsError when a trial of the plan has no figures."""
    results = compile_results(store)
    report = write_report(store, results)
    say("\n".join([text_table(results.rows, TABLE_WIDTH), *notes(results.rows), f"report: {report}"]))
    if results.missing:
        lines = "\n".join(f"  {line}" for line in results.missing)
        raise MissingResultsError(
            f"{len(results.missing)} of {len(results.sweep.trials)} trials have no figures:\n{lines}"
        )
