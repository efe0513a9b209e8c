"""Any array whose cache a command empties over SSH."""

from __future__ import annotations

import asyncio
import shlex
import time
from typing import Any

from scaleout.array.base import FlushEvidence
from scaleout.array.over_ssh import run_on_array
from scaleout.config.cluster import CommandArray
from scaleout.remote.node import Answer
from scaleout.remote.target import Target


class AnyCommandArray:
    """Exit status 0 of the command is the only acknowledgement there is."""

    def __init__(self, config: CommandArray, target: Target, connect_timeout_s: float) -> None:
        self._config, self._target, self._connect_timeout_s = config, target, connect_timeout_s

    async def check(self) -> dict[str, Any]:
        await self._run(["true"])
        return {"array_nodes": None}

    async def flush(self) -> FlushEvidence:
        started = time.monotonic()
        answer = await self._run(self._config.command)
        seconds = time.monotonic() - started
        complete = answer.exit_status == 0
        await asyncio.sleep(self._config.settle_s)
        return FlushEvidence(
            kind="command",
            command=shlex.join(self._config.command),
            complete=complete,
            reason=None if complete else f"exit status {answer.exit_status}: {answer.last_words()}",
            expected=None,
            acknowledged=[self._target.host] if complete else [],
            seconds=seconds,
            settled_s=self._config.settle_s,
            t_wall_s=time.time(),
        )

    async def _run(self, command: list[str]) -> Answer:
        limits = {"connect_timeout_s": self._connect_timeout_s, "timeout_s": self._config.timeout_s}
        return await run_on_array(self._target, command, **limits)
