"""OneFS: `isi_for_array isi_flush` over SSH to one array node, acknowledged by each of them.

`isi_flush` says nothing when it succeeds, so each array node is asked to say that it did; the words stand behind the
node's name and a colon. Whether `isi_for_array` reports one node's failure in its exit status is not known, so it is not
what counts: the acknowledgements are, against the number of array nodes in the cluster's file.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import time
from typing import Any

from scaleout.array.base import FlushEvidence
from scaleout.array.over_ssh import run_on_array
from scaleout.config.cluster import OneFS
from scaleout.errors import ArrayError
from scaleout.remote.node import Answer
from scaleout.remote.target import Target

FLUSHED = "scaleout-flushed"
PRESENT = "scaleout-present"
_LINE = re.compile(r"^(?P<node>[A-Za-z0-9._-]+):\s?(?P<text>.*)$")


class OneFSArray:
    """An Isilon or PowerScale array, reached through one of its nodes."""

    def __init__(self, config: OneFS, target: Target, connect_timeout_s: float) -> None:
        self._config, self._target, self._connect_timeout_s = config, target, connect_timeout_s

    async def check(self) -> dict[str, Any]:
        answer = await self._for_array(f"echo {PRESENT}")
        present = nodes_that_said(PRESENT, answer.stdout)
        if len(present) != self._config.nodes:
            raise ArrayError(
                f"array {self._target.host}: {len(present)} of {self._config.nodes} array nodes answered "
                f"({', '.join(present) or answer.last_words()}): mend the array, or its `nodes` in the cluster's file"
            )
        return {"array_nodes": present}

    async def flush(self) -> FlushEvidence:
        started = time.monotonic()
        answer = await self._for_array(f"isi_flush && echo {FLUSHED}")
        seconds = time.monotonic() - started
        acknowledged = nodes_that_said(FLUSHED, answer.stdout)
        complete = len(acknowledged) == self._config.nodes
        await asyncio.sleep(self._config.settle_s)
        return FlushEvidence(
            kind="onefs",
            command=shlex.join(self._command(f"isi_flush && echo {FLUSHED}")),
            complete=complete,
            reason=None
            if complete
            else f"{len(acknowledged)} of {self._config.nodes} array nodes acknowledged the flush",
            expected=self._config.nodes,
            acknowledged=acknowledged,
            seconds=seconds,
            settled_s=self._config.settle_s,
            t_wall_s=time.time(),
            details={"exit_status": answer.exit_status, "other_lines": other_lines(answer.stdout)},
        )

    def _command(self, on_each: str) -> list[str]:
        sudo = ["sudo", "-n"] if self._config.sudo else []
        return [*sudo, "isi_for_array", "-s", on_each]

    async def _for_array(self, on_each: str) -> Answer:
        limits = {"connect_timeout_s": self._connect_timeout_s, "timeout_s": self._config.timeout_s}
        answer = await run_on_array(self._target, self._command(on_each), **limits)
        if answer.exit_status != 0 and not any(map(_LINE.match, answer.stdout.splitlines())):
            raise ArrayError(
                f"array {self._target.host} refused `isi_for_array` as {self._target.user} "
                f"(exit status {answer.exit_status}): {answer.last_words()}"
            )
        return answer


def nodes_that_said(word: str, output: str) -> list[str]:
    """The array nodes whose output has a line that is `word`, sorted."""
    matches = filter(None, map(_LINE.match, output.splitlines()))
    return sorted({match["node"] for match in matches if match["text"].strip() == word})


def other_lines(output: str) -> list[str]:
    """What was said besides acknowledgements: the array's own words on what went wrong."""
    return [line for line in output.splitlines() if not line.rstrip().endswith((FLUSHED, PRESENT))]
