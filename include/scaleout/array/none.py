"""No array that could be flushed."""

from __future__ import annotations

import time
from typing import Any

from scaleout.array.base import FlushEvidence


class NoNasArray:
    """Says honestly that nothing was flushed."""

    async def check(self) -> dict[str, Any]:
        return {"array_nodes": None}

    async def flush(self) -> FlushEvidence:
        return FlushEvidence(
            kind="none",
            command="",
            complete=False,
            reason="the cluster's file names no array to flush",
            expected=None,
            acknowledged=[],
            seconds=0.0,
            settled_s=0.0,
            t_wall_s=time.time(),
        )
