"""Lists this node's processes that carry a run's id in their environment.

Usage: processes.py RUN_ID    prints {"processes": [{"pid", "command"}…], "unreadable": count}
"""

import json
import os
import sys


def processes(run_id):
    mark = f"SCALEOUT_RUN_ID={run_id}".encode()
    found, unreadable = [], 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as environ:
                marked = mark in environ.read().split(b"\0")
            if marked:
                with open(f"/proc/{pid}/cmdline", "rb") as cmdline:
                    command = cmdline.read().replace(b"\0", b" ").decode(errors="replace").strip()
                found.append({"pid": int(pid), "command": command})
        except PermissionError:
            unreadable += 1
        except (FileNotFoundError, ProcessLookupError):  # it ended while we looked
            continue
    return {"processes": found, "unreadable": unreadable}


if __name__ == "__main__":
    print(json.dumps(processes(sys.argv[1])))
