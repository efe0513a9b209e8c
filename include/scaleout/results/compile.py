"""Gathers the rows of a sweep into `results.json` and `scaling.csv`."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from typing import Any

from scaleout.analysis.row import Row
from scaleout.analysis.scaling import with_scaling
from scaleout.plan.sweep import Sweep
from scaleout.results.store import LAUNCH_FILE, RESULTS_FILE, ROW_FILE, SweepStore, write_text

SCHEMA = 1
CSV_FILE = "scaling.csv"
NOT_IN_CSV = {"overrides", "commands", "notes", "reasons", "evidence", "provenance", "epochs", "nodes_used", "length"}


@dataclass(frozen=True)
class Results:
    """A sweep's rows, and a sentence for each trial that has no figures."""

    sweep: Sweep
    rows: list[Row]
    missing: list[str]


def compile_results(store: SweepStore) -> Results:
    """Reads the rows, adds the scaling, writes both files, points `latest` here."""
    sweep = store.sweep()
    rows, missing = [], []
    for trial in sweep.trials:
        folder = store.last_try(trial.key)
        document = store.read(folder, ROW_FILE) if folder else None
        row = Row.model_validate(document) if document else None
        if row is not None:
            rows.append(row)
        if row is None or row.status != "succeeded":
            missing.append(f"{trial.key}: {_why_missing(store, sweep, folder, row)}")
    rows = with_scaling(rows, [trial.key for trial in sweep.trials])
    results = Results(sweep, rows, missing)
    store.write(document_of(results), RESULTS_FILE)
    write_text(store.folder / CSV_FILE, csv_of(rows))
    store.point_latest_here()
    return results


def document_of(results: Results) -> dict[str, Any]:
    """The document of `results.json`."""
    sweep = results.sweep
    return {
        "schema": SCHEMA,
        "run_id": sweep.run_id,
        "cluster": sweep.cluster.name,
        "started_at": sweep.created_at,
        "release": sweep.release,
        "trials": [row.model_dump(mode="json") for row in results.rows],
        "missing": results.missing,
    }


def csv_of(rows: list[Row]) -> str:
    """One line per trial; units are in the column names, an unmeasured value is empty.

    `manifests_read` tells which trials read the same data: SHA-256, with spaces between them where ranks read different ones.
    """
    columns = [name for name in Row.model_fields if name not in NOT_IN_CSV]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*columns, "manifests_read"])
    for row in rows:
        values = ["" if getattr(row, name) is None else getattr(row, name) for name in columns]
        writer.writerow([*values, " ".join(row.manifests_read)])
    return out.getvalue()


def _why_missing(store: SweepStore, sweep: Sweep, folder: str | None, row: Row | None) -> str:
    if row is not None:
        return row.reasons.get("images_per_s", "it failed")
    if folder is not None:
        launch = store.read(folder, LAUNCH_FILE) or {}
        return launch.get("failure") or "it was launched and its results were not collected"
    return sweep.stopped or ("it was not launched" if sweep.ready else "the sweep did not get ready")
