"""What every way of emptying a NAS cache gives back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class FlushEvidence:
    """Proof of a flush. `acknowledged` are the array nodes that said so, of `expected`; complete when all did.

    `expected` null: the array has no nodes that could be counted. `reason` says why an incomplete flush is one.
    """

    kind: str
    command: str
    complete: bool
    reason: str | None
    expected: int | None
    acknowledged: list[str]
    seconds: float
    settled_s: float
    t_wall_s: float
    details: dict[str, Any] = field(default_factory=dict)


class NasArray(Protocol):
    """One array. Both methods raise ArrayError when it cannot be reached or refuses."""

    async def check(self) -> dict[str, Any]:
        """Whether the array answers, and with how many nodes; changes nothing."""
        ...

    async def flush(self) -> FlushEvidence:
        """Empties the array's read caches and waits until it has settled."""
        ...
