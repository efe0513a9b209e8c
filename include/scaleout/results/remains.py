"""Reads what a trial left in its results folder."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any

from scaleout.analysis.rates import bodies
from scaleout.analysis.trial import Remains
from scaleout.plan.sweep import Sweep, Trial
from scaleout.results.store import CACHES_FILE, LAUNCH_FILE, PREFLIGHT_FILE, SweepStore
from training.wire.events import Event, RunStart, read_events
from training.wire.job import EVENTS_FILE, TELEMETRY_FILE
from training.wire.schema import WireError, from_dict
from training.wire.telemetry import TelemetrySample


def remains_of(store: SweepStore, sweep: Sweep, trial: Trial, folder: str) -> Remains:
    """Everything about one try. A damaged log is a failure of the trial, told as such, not an error here."""
    launch: dict[str, Any] = store.read(folder, LAUNCH_FILE) or {}
    failure = launch.get("failure")
    events: dict[int, list[Event]] = {}
    telemetry: dict[str, list[TelemetrySample]] = {}
    try:
        for node in trial.node_names:
            events |= read_node_events(store.folder / folder / node)
            telemetry[node] = read_telemetry(store.folder / folder / node / TELEMETRY_FILE)
    except WireError as error:
        failure = failure or str(error)
    preflight = store.read(PREFLIGHT_FILE) or {"nodes": {}}
    return Remains(
        trial=trial,
        folder=folder,
        workload=sweep.workloads[trial.workload],
        failure=failure,
        events=events,
        telemetry=telemetry,
        caches=store.read(folder, CACHES_FILE),
        preflight=preflight["nodes"],
        commands=launch.get("commands", {}),
        notes=_notes(store, trial, folder),
        provenance=_provenance(sweep, trial, preflight, launch, events),
    )


def _notes(store: SweepStore, trial: Trial, folder: str) -> list[str]:
    """How often an orchestrator that died was replaced meanwhile, and how the tries before this one ended."""
    notes = []
    for attempt, earlier in enumerate(takewhile(lambda name: name != folder, store.tries(trial.key)), start=1):
        failure = store.read(earlier, LAUNCH_FILE)["failure"]
        notes.append(f"try {attempt}: {failure.splitlines()[0] if failure else 'succeeded, and was repeated'}")
    picked_up = len((store.read(folder, LAUNCH_FILE) or {}).get("picked_up_wall_s", []))
    if picked_up:
        notes.append(f"picked up {picked_up} time{'s' * (picked_up > 1)} after the orchestrator had died")
    return notes


def read_node_events(folder: Path) -> dict[int, list[Event]]:
    """The event logs of one node's ranks, by global rank. Raises WireError."""
    logs = {}
    for path in sorted(folder.glob(f"rank*/{EVENTS_FILE}")):
        log = list(read_events(path))
        if log:
            logs[log[0].rank] = log
    return logs


def read_telemetry(path: Path) -> list[TelemetrySample]:
    """The samples of a node; a last line that was cut off is left out. Raises WireError."""
    if not path.exists():
        return []
    lines = [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
    try:
        documents = [json.loads(line.decode()) for line in lines]
    except ValueError as error:
        raise WireError(f"{path}: {error}") from None
    return [from_dict(TelemetrySample, document, f"{path}:{i}") for i, document in enumerate(documents, start=1)]


def _provenance(
    sweep: Sweep, trial: Trial, preflight: dict[str, Any], launch: dict[str, Any], events: dict[int, list[Event]]
) -> dict[str, Any]:
    starts = {rank: start for rank, log in sorted(events.items()) for start in bodies(log, RunStart)}
    read = {start.dataset.manifest_sha256 for start in starts.values() if start.dataset}
    return {
        "release": sweep.release,
        "dataset": sweep.datasets.get(trial.workload),
        "manifests_read": sorted(sha256 or "none" for sha256 in read),
        "array": preflight.get("array"),
        "nodes": {node: preflight["nodes"].get(node) for node in trial.node_names},
        "network_interfaces": {
            node: job["environment"].get("GLOO_SOCKET_IFNAME") for node, job in launch.get("jobs", {}).items()
        },
        "ranks": {
            str(rank): {
                name: getattr(start, name)
                for name in (
                    "node", "device", "device_name", "backend", "ddp", "precision", "loader", "affinity",
                    "network_interface", "versions", "seed", "num_workers", "learning_rate",
                )
            }
            for rank, start in starts.items()
        },
    }  # fmt: skip
