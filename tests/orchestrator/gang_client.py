"""An orchestrator in a process of its own, to be killed or stopped: runs one gang.

Usage: gang_client.py FOLDER RELEASE RUN_ID LEASE_S SCRIPT    FOLDER holds a private cluster of node1 and node2 that is up

Prints `<node> <line>` as lines come; at last `succeeded`, or `failed: ` and the sentence.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import private_cluster
from gangs import Gang, bash

from scaleout.errors import GangError
from scaleout.remote.gang import run_gang


async def main() -> None:
    folder, release, run_id, lease_s, script = sys.argv[1:]
    cluster = private_cluster.make(Path(folder), ["node1", "node2"])
    gang = Gang(run_id, release)
    async with cluster.connected("node1", "node2") as nodes:
        places = gang.places(nodes, bash(script), lease_s=float(lease_s), grace_s=1)
        try:
            await run_gang(places, lambda node, line: print(node, line, flush=True))
            print("succeeded", flush=True)
        except GangError as error:
            print("failed:", error, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
