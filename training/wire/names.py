"""Names that become paths: the slug of a run and the key of a trial."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Literal

from training.wire.schema import WireError

CacheMode = Literal["cold", "warm"]
CACHE_MODES: tuple[CacheMode, ...] = ("cold", "warm")
# What a sweep counts: the nodes of a cluster, or what one host has.
Axis = Literal["nodes", "gpus", "processes"]
_LETTERS: dict[str, Axis] = {"n": "nodes", "g": "gpus", "p": "processes"}

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_KEY = re.compile(
    r"(?P<workload>[a-z][a-z0-9_]*)-(?P<axis>[ngp])(?P<count>[1-9][0-9]*)-(?P<cache_mode>cold|warm)"
    r"-r(?P<round>[1-9][0-9]*)-t(?P<attempt>[1-9][0-9]*)"
)
_SLUG_LENGTH = 100
_TAKEN = re.compile(r"latest|.*-[0-9a-f]{8}")  # the link to the last sweep, and what replaced names look like


def slug(run_id: str) -> str:
    """A folder name for a run: letters, digits, `.`, `_` and `-`, at most 100 of them, never `.` or `..`.

    A run_id may hold `:`, `+`, `/` or `..` (Airflow's do). Where characters are replaced or cut, eight digits of the
    run_id's SHA-256 keep two runs apart; so they do for a run_id that looks like another run's slug.
    """
    safe_already = _SAFE.fullmatch(run_id) and ".." not in run_id and len(run_id) <= _SLUG_LENGTH
    if safe_already and not _TAKEN.fullmatch(run_id):
        return run_id
    digest = hashlib.sha256(run_id.encode()).hexdigest()[:8]
    safe = re.sub(r"[^A-Za-z0-9_-]+|\.{2,}", "-", run_id).strip("-._") or "run"
    return f"{safe[: _SLUG_LENGTH - 9]}-{digest}"


def counted(axis: Axis, count: int) -> str:
    """`1 node`, `4 GPUs`, `2 processes`."""
    one, more = {"nodes": ("node", "nodes"), "gpus": ("GPU", "GPUs"), "processes": ("process", "processes")}[axis]
    return f"{count} {one if count == 1 else more}"


@dataclass(frozen=True, order=True)
class TrialKey:
    """One trial of a sweep: round (from 1), workload, how many of the axis, cache mode asked for."""

    round: int
    workload: str
    count: int
    cache_mode: CacheMode
    axis: Axis = "nodes"

    def folder(self, attempt: int) -> str:
        """`ssd-n2-cold-r1-t1`: the trial's folder for its `attempt`-th try (from 1); `g` and `p` for GPUs and processes."""
        letter = next(letter for letter, axis in _LETTERS.items() if axis == self.axis)
        name = f"{self.workload}-{letter}{self.count}-{self.cache_mode}-r{self.round}-t{attempt}"
        if not _KEY.fullmatch(name):
            raise WireError(_no_trial_folder(name))
        return name

    @classmethod
    def parse(cls, folder: str) -> tuple[TrialKey, int]:
        """The key and the try of a folder's name. Raises WireError."""
        match = _KEY.fullmatch(folder)
        if not match:
            raise WireError(_no_trial_folder(folder))
        cache_mode: CacheMode = "cold" if match["cache_mode"] == "cold" else "warm"
        key = cls(int(match["round"]), match["workload"], int(match["count"]), cache_mode, _LETTERS[match["axis"]])
        return key, int(match["attempt"])

    def __str__(self) -> str:
        return f"{self.workload} on {counted(self.axis, self.count)}, {self.cache_mode}, round {self.round}"


def _no_trial_folder(name: str) -> str:
    return f"{name!r} is not a trial folder: <workload>-n<nodes>-<cache>-r<round>-t<try>"
