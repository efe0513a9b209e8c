"""`$SCALEOUT_HOME/results/<run slug>/`: the plan, what each trial left, the results."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

from scaleout import settings
from scaleout.config.model import validated
from scaleout.errors import ConfigError, ScaleoutError
from scaleout.plan.sweep import Sweep
from training.wire.names import TrialKey, slug

SWEEP_FILE = "sweep.json"
PREFLIGHT_FILE = "preflight.json"
RESULTS_FILE = "results.json"
CACHES_FILE = "caches.json"
LAUNCH_FILE = "launch.json"
PREPARE_FILE = "prepare.json"
ROW_FILE = "row.json"
LATEST = "latest"
IN_FLIGHT = "it was launched and did not report its end"  # the failure in the record of a gang that may still run
LEAST_FREE_BYTES = 200 * 10**6


class SweepStore:
    """The folder of one sweep. Every file in it is written whole or not at all."""

    def __init__(self, run_id: str, folder: Path | None = None) -> None:
        """`folder`: another than the run's own among the results."""
        self.folder = folder or settings.results_dir() / slug(run_id)

    def create(self, sweep: Sweep) -> None:
        """Writes the plan into a folder of its own. Raises ScaleoutError where it cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.folder).free
            if free < LEAST_FREE_BYTES:
                raise ScaleoutError(
                    f"{self.folder.parent} has {free / 1e6:.0f} MB free and {LEAST_FREE_BYTES / 1e6:.0f} MB are needed for "
                    "results: free some, or name another place in SCALEOUT_HOME"
                )
            self.save(sweep)
        except OSError as error:
            raise ScaleoutError(
                f"{self.folder}: results cannot be written there: {error.strerror}; name another place in SCALEOUT_HOME"
            ) from None

    def sweep(self) -> Sweep:
        """The plan. Raises ConfigError when there is none."""
        path = self.folder / SWEEP_FILE
        if not path.exists():
            raise ConfigError(f"{path} does not exist: the task `plan` of this run did not succeed")
        return validated(Sweep, json.loads(path.read_text(encoding="utf-8")), lambda _: str(path))

    def save(self, sweep: Sweep) -> None:
        write_text(self.folder / SWEEP_FILE, sweep.model_dump_json(indent=1) + "\n")

    def update(self, **changes: Any) -> Sweep:
        """Changes fields of the plan's state: `ready`, `stopped`, `release`, `datasets`."""
        sweep = self.sweep().model_copy(update=changes)
        self.save(sweep)
        return sweep

    def read(self, *names: str) -> Any:
        """A JSON document in the folder, or None where there is none."""
        path = self.folder.joinpath(*names)
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def write(self, document: Any, *names: str) -> Path:
        path = self.folder.joinpath(*names)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")
        return path

    def next_try(self, key: TrialKey) -> str:
        """The folder name of the try to come: the first one that was not launched yet."""
        attempt = 1
        while (self.folder / key.folder(attempt) / LAUNCH_FILE).exists():
            attempt += 1
        return key.folder(attempt)

    def tries(self, key: TrialKey) -> list[str]:
        """The folder names of the tries that were launched, in order."""
        return [key.folder(attempt) for attempt in range(1, TrialKey.parse(self.next_try(key))[1])]

    def last_try(self, key: TrialKey) -> str | None:
        """The folder name of the last try that was launched, or None."""
        return (self.tries(key) or [None])[-1]

    def point_latest_here(self) -> None:
        """Makes `results/latest` lead to this sweep, where it lies there."""
        if self.folder.parent != settings.results_dir():
            return
        link = self.folder.parent / f".{LATEST}.{os.getpid()}"
        link.unlink(missing_ok=True)
        link.symlink_to(self.folder.name)
        link.replace(self.folder.parent / LATEST)


def write_text(path: Path, text: str) -> None:
    """Replaces a file so that a reader sees the old one or the whole new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    with partial.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)
