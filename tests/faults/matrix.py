"""What the cells of the fault matrix found, as a table."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

CELLS = pytest.StashKey[list["Found"]]()
HEADINGS = (
    "fault",
    "nodes",
    "ranks",
    "end",
    "first cause, as told",
    "told after s",
    "nothing left after s",
    "lines",
    "steps",
    "next launch s",
)


@dataclass
class Found:
    """One cell. `told_s` and `gone_s` count from the fault; `lines` were heard, `steps` are in the event logs."""

    fault: str
    nodes: int
    ranks: str
    end: str = "?"
    cause: str = ""
    told_s: float | None = None
    gone_s: float | None = None
    lines: int | None = None
    steps: int | None = None
    next_launch_s: float | None = None
    problem: str = ""

    def row(self) -> list[str]:
        end = f"**{self.problem}**" if self.problem else self.end
        numbers = [self.told_s, self.gone_s]
        shown = [f"{number:.1f}" if number is not None else "–" for number in numbers]
        counts = [str(count) if count is not None else "–" for count in (self.lines, self.steps)]
        following = f"{self.next_launch_s:.1f}" if self.next_launch_s is not None else "–"
        return [self.fault, str(self.nodes), self.ranks, end, self.cause, *shown, *counts, following]


def table(cells: list[Found]) -> str:
    """Markdown."""
    rows = [list(HEADINGS), ["---"] * len(HEADINGS), *(cell.row() for cell in cells)]
    return "".join(
        "| " + " | ".join(text.replace("|", "\\|").replace("\n", " ") for text in row) + " |\n" for row in rows
    )


def write(cells: list[Found], path: Path) -> None:
    """The table, and beside it the same as JSON."""
    path.write_text(table(cells))
    path.with_suffix(".json").write_text(json.dumps([asdict(cell) for cell in cells], indent=1) + "\n")
