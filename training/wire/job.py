"""The job file (orchestrator to node) and the exit status (node to orchestrator), and the names of a node's run folder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from training.wire import VERSION

JOB_FILE = "job.json"
EXIT_FILE = "exit.json"
LOG_FILE = "log"
TELEMETRY_FILE = "telemetry.jsonl"
EVENTS_FILE = "events.jsonl"
STACKS_FILE = "stacks.txt"

RUN_ID_VARIABLE = "SCALEOUT_RUN_ID"
NODE_VARIABLE = "SCALEOUT_NODE"
RUN_FOLDER_VARIABLE = "SCALEOUT_RUN_FOLDER"


def rank_prefix(rank: int | str) -> str:
    """How a line of a rank's begins in the log of its node, which has those of all its ranks."""
    return f"[rank {rank}] "


def rank_folder(rank: int) -> str:
    """The folder, inside the node's run folder, of one global rank's files."""
    return f"rank{rank}"


@dataclass(frozen=True)
class Job:
    """What one node runs for one trial.

    `command` is an argument vector run in `cwd` with `environment` added to the login's. The supervisor ends it when
    the lease was not renewed for `lease_s`, and `grace_s` after TERM it sends KILL. `timeout_s` null: no limit.
    """

    run_id: str
    trial: str
    node: str
    node_rank: int
    nodes: list[str]
    release: str
    command: list[str]
    cwd: str
    environment: dict[str, str]
    lease_s: float
    grace_s: float
    timeout_s: float | None
    telemetry_interval_s: float
    wire_version: int = VERSION


ExitState = Literal["succeeded", "failed", "stopped", "lease_expired", "timed_out", "stalled", "lost"]
PartState = Literal["absent", "running", "over", "dead"]


@dataclass(frozen=True)
class RankError:
    """Why a global rank failed, in its own words or as its process was seen to end, and when (Unix time)."""

    rank: int
    t_wall_s: float
    error: str


@dataclass(frozen=True)
class RankProgress:
    """The last sign of life in a global rank's event log: the kind of its last event, and when the log was last touched.

    `t_wall_s` is Unix time; a rank touches its log at every step, also where no event is due. `suspended`: its process was
    stopped by a signal or a debugger.
    """

    rank: int
    t_wall_s: float
    last_event: str
    suspended: bool = False


@dataclass(frozen=True)
class ExitStatus:
    """How one node's part of a gang ended. `exit_code` and `signal` are the launcher's; at most one is not null.

    `stalled`: ended because no rank of the gang made progress. `lost`: its supervisor was killed or failed.
    `rank_error` is the first failure of a rank of this node, null where none failed. `progress` has each rank that began.
    `disk_full`: that of the run folder was, so that ranks could not even say it.
    `left_processes` counts descendants that could not be ended (it is 0, or something is badly wrong).
    """

    node: str
    state: ExitState
    exit_code: int | None
    signal: int | None
    reason: str
    started_wall_s: float
    ended_wall_s: float
    ended_processes: int
    left_processes: int
    rank_error: RankError | None
    log_tail: list[str]
    disk_full: bool = False
    progress: list[RankProgress] = field(default_factory=list)
    wire_version: int = VERSION
