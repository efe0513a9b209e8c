"""The cluster lock on this node: one file, taken by one sweep at a time.

Usage: lock.py acquire|renew|release|show|break ROOT RECORD

RECORD is a JSON object with `run_id`, `owner`, `host`, `pid`, `ttl_s`. The file is in ROOT/lock.json; changes to it are
serialised by flock on ROOT/lock.guard. The holder may acquire again; a lock that was not renewed for its `ttl_s` is free.
Prints {"held": bool, "by": {...} or null, "age_s": seconds since renewal or null}.
"""

import fcntl
import json
import os
import sys
import time
from pathlib import Path

NUMBER = (int, float)
KEYS = {"run_id": str, "owner": str, "host": str, "pid": int, "ttl_s": NUMBER, "renewed_wall_s": NUMBER}


def read(path):
    """The record, or None where there is no lock. Raises ValueError for a file that is none."""
    try:
        held = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    if not isinstance(held, dict) or not all(isinstance(held.get(key), kind) for key, kind in KEYS.items()):
        raise ValueError(held)
    return held


def write(path, record):
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(json.dumps({**record, "renewed_wall_s": time.time()}))
    partial.replace(path)


def is_free(held, run_id):
    return held is None or held["run_id"] == run_id or time.time() - held["renewed_wall_s"] > held["ttl_s"]


def act(action, path, wanted):
    held = read(path)
    mine = held is not None and held["run_id"] == wanted.get("run_id")
    if action == "acquire" and is_free(held, wanted["run_id"]):
        write(path, wanted)
    elif action == "renew" and mine:
        write(path, held)
    elif (action == "release" and mine) or action == "break":
        path.unlink(missing_ok=True)


def main():
    action, root, record = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    try:
        root.mkdir(parents=True, exist_ok=True)
        with (root / "lock.guard").open("a") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            act(action, root / "lock.json", record)
            held = read(root / "lock.json")
    except OSError as error:
        print(f"{root}: the lock cannot be written: {error.strerror}", file=sys.stderr)
        return 1
    except ValueError:
        print(f"{root}/lock.json is damaged: remove it when no sweep runs", file=sys.stderr)
        return 1
    mine = held is not None and held["run_id"] == record.get("run_id")
    age_s = None if held is None else time.time() - held["renewed_wall_s"]
    print(json.dumps({"held": mine, "by": held, "age_s": age_s}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
