"""The command of every node of a trial, as one would type it on that node. Pure."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from scaleout.config.form import Length
from scaleout.config.workload import Launcher, Workload
from scaleout.plan.sweep import Trial
from training.wire.job import rank_prefix

LOGS_FOLDER = "logs"
# Each line of a rank's that the launcher hands on begins with this.
LAUNCHER_ENVIRONMENT = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": rank_prefix("${rank}")}


@dataclass(frozen=True)
class Rendezvous:
    """Where the ranks meet: an address and a port of the node with node rank 0."""

    address: str
    port: int


def node_command(
    *, trial: Trial, workload: Workload, node_rank: int, rendezvous: Rendezvous, python: str, data: str, events: str
) -> list[str]:
    """The argument vector of one node, to be run in the folder of the workload's program.

    `data` is the prepared data set and `events` the folder for the event logs, both absolute on the node. What each rank
    says goes to files of its own below `events`, and is shown as well.
    """
    program = workload.program.rsplit("/", 1)[-1]
    return [
        *_launcher(trial.launcher, python),
        f"--nproc_per_node={trial.processes_per_node}",
        f"--nnodes={trial.nodes}",
        f"--node_rank={node_rank}",
        f"--master_addr={rendezvous.address}",
        f"--master_port={rendezvous.port}",
        f"--log-dir={events}/{LOGS_FOLDER}",
        "--tee=3",
        program,
        *trial.arguments,
        *_program_flags(trial, workload, data),
        *_measurement_flags(trial, events),
    ]


def shown(command: list[str], cwd: str, environment: dict[str, str]) -> str:
    """The command as one line of shell that does the same when pasted on the node."""
    exports = "".join(f"{name}={_quoted(value)} " for name, value in sorted(environment.items()))
    return f"cd {_quoted(cwd)} && {exports}{' '.join(map(_quoted, command))}"


def _quoted(word: str) -> str:
    """A word of shell; also of zsh, to which a bare `=ls` is the path of `ls`."""
    return f"'{word}'" if shlex.quote(word) == word and word.startswith("=") else shlex.quote(word)


def _launcher(launcher: Launcher, python: str) -> list[str]:
    module = {"torchrun": "torch.distributed.run", "torch.distributed.launch": "torch.distributed.launch"}[launcher]
    return [python, "-m", module]


def _program_flags(trial: Trial, workload: Workload, data: str) -> list[str]:
    flags = workload.flags
    values = [
        flags.data,
        data,
        flags.batch_per_gpu,
        str(trial.batch_per_gpu),
        flags.num_workers,
        str(trial.num_workers),
    ]
    if flags.seed:
        values += [flags.seed, str(trial.seed)]
    if flags.no_checkpoints:
        values.append(flags.no_checkpoints)
    return values + _length_flags(trial.length, flags.epochs)


def _length_flags(length: Length, epochs_flag: str) -> list[str]:
    if length.steps is not None:
        return ["--steps", str(length.steps)]
    if length.seconds is not None:
        return ["--seconds", str(length.seconds).removesuffix(".0")]
    return [epochs_flag, str(length.epochs)]


def _measurement_flags(trial: Trial, events: str) -> list[str]:
    window = [] if trial.window_steps is None else ["--window-steps", str(trial.window_steps)]
    return [
        *window,
        "--warmup-steps", str(trial.warmup_steps),
        "--synthetic-steps", str(trial.synthetic_steps),
        "--events", events,
    ]  # fmt: skip
