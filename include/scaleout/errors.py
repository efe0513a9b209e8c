"""What a user can do something about. Each message says what happened, where, and what to do next."""

from __future__ import annotations

STOPPED = 130  # the exit status that a shell reports for a command that Ctrl-C ended


class ScaleoutError(Exception):
    """Base of all. `exit_code` is the command line's."""

    exit_code = 1


class ConfigError(ScaleoutError):
    """A file, the trigger form or an environment variable is wrong."""

    exit_code = 2


class PlanError(ScaleoutError):
    """The sweep that was asked for cannot be run as asked."""

    exit_code = 2


class NodeError(ScaleoutError):
    """A node did not do what it was asked. `node` is its name."""

    def __init__(self, node: str, message: str) -> None:
        super().__init__(f"{node}: {message}")
        self.node = node


class FleetError(ScaleoutError):
    """Several nodes failed at the same step; the message has a line for each."""

    def __init__(self, step: str, problems: list[NodeError]) -> None:
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{step} failed on {len(problems)} node{'s' * (len(problems) > 1)}:\n{lines}")
        self.problems = problems


class LockHeldError(ScaleoutError):
    """Another sweep holds the cluster."""


class ArrayError(ScaleoutError):
    """The NAS did not empty its cache, or not on all of its nodes."""


class GangError(ScaleoutError):
    """The processes of a trial did not all succeed; the message names the first cause."""


class SupersededError(GangError):
    """A newer attempt holds the gang now; this one has no say in it any more."""


class MissingResultsError(ScaleoutError):
    """Trials of the sweep have no figures."""
