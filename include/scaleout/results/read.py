"""Reads the results of a finished sweep."""

from __future__ import annotations

import json
from pathlib import Path

from scaleout.analysis.row import Row
from scaleout.errors import ConfigError
from scaleout.results.store import RESULTS_FILE


def rows_of(folder: Path) -> tuple[list[Row], list[str]]:
    """The rows and the sentences on what is missing. Raises ConfigError when the folder holds no results."""
    path = folder / RESULTS_FILE
    if not path.exists():
        there = sorted(p.parent.name for p in folder.parent.glob(f"*/{RESULTS_FILE}"))
        raise ConfigError(
            f"{path}: no results there; {'there are: ' + ', '.join(there[-5:]) if there else 'run a sweep first'}"
        )
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return [Row.model_validate(trial) for trial in document["trials"]], document["missing"]
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: damaged, or of another version of scaleout") from None
