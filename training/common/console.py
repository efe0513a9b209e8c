"""Plain lines for people: rank 0 only, each one handed on at once."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Console:
    """Says nothing on ranks other than 0."""

    rank: int

    def say(self, line: str) -> None:
        if self.rank == 0:
            print(line, flush=True)
