"""The trial slots of the DAG: what shapes it when it is parsed."""

from __future__ import annotations

import re

from scaleout import settings
from scaleout.config import files
from scaleout.config.cluster import Cluster
from scaleout.config.workload import NAME
from scaleout.errors import ConfigError
from scaleout.plan.resolve import most_rounds
from training.wire.names import CACHE_MODES, TrialKey


def trial_slots(cluster: Cluster) -> list[TrialKey]:
    """A slot for every round, workload, node count and cache mode that a preset or a form can ask for, in running order."""
    return [
        TrialKey(round_, workload, nodes, cache_mode)
        for round_ in range(1, most_rounds() + 1)
        for workload in _workloads()
        for nodes in cluster.counts()
        for cache_mode in CACHE_MODES
    ]


def _workloads() -> list[str]:
    """The names of the workloads' files, which become those of tasks. Raises ConfigError."""
    names = files.names("workloads")
    for name in names:
        if not re.fullmatch(NAME, name):
            folder = settings.config_dir() / "workloads"
            raise ConfigError(
                f"{folder / name}.yaml: {name!r} is no name of a workload ({NAME}): remove or rename the file"
            )
    return names
