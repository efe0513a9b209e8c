"""The cluster lock on this node: one file, taken by one sweep at a time.

Usage: lock.py acquire|renew|release|show|break ROOT RECORD

RECORD is a JSON object with `run_id`, `owner`, `host`, `pid`, `ttl_s`. The file is ROOT/lock.HOSTNAME.json, a node's own
though nodes may share ROOT (a home on the network); changes to it are serialised by flock on a file beside it. The holder may
acquire again; a lock that was not renewed for its `ttl_s` is free. Prints {"held": bool, "by": {...} or null, "age_s": seconds
since renewal or null, "file": its path, "damaged": the file holds no record}.

Ages are those of the kernel's clock since boot, which nobody sets. After a reboot they count from it: what was renewed
before is as old as the boot at least.
"""

import fcntl
import json
import math
import os
import sys
import time
from pathlib import Path

NUMBER = (int, float)
KEYS = {
    "run_id": str, "owner": str, "host": str, "pid": int, "ttl_s": NUMBER,
    "taken_wall_s": NUMBER, "boot_id": str, "renewed_boot_s": NUMBER,
}  # fmt: skip
DAMAGED = "damaged"


def read(path):
    """The record, None where there is no lock, DAMAGED for a file that is none."""
    try:
        held = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError):
        return DAMAGED
    if not isinstance(held, dict) or not all(isinstance(held.get(key), kind) for key, kind in KEYS.items()):
        return DAMAGED
    return held if all(math.isfinite(held[key]) for key, kind in KEYS.items() if kind is NUMBER) else DAMAGED


def write(path, record):
    """Replaces the file; one that was cut off by a loss of power would be damaged, so it goes to the disk first."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w") as out:
        json.dump({**record, "boot_id": boot_id(), "renewed_boot_s": since_boot_s()}, out)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(path)


def boot_id():
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def since_boot_s():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def age_s(held):
    """Seconds since the last renewal, at least."""
    return since_boot_s() - (held["renewed_boot_s"] if held["boot_id"] == boot_id() else 0)


def is_by(held, run_id):
    return isinstance(held, dict) and held["run_id"] == run_id


def acquire(path, held, wanted):
    if is_by(held, wanted["run_id"]):
        write(path, {**wanted, "taken_wall_s": held["taken_wall_s"]})
    elif held is None or (held != DAMAGED and age_s(held) > held["ttl_s"]):
        write(path, {**wanted, "taken_wall_s": time.time()})


def act(action, path, wanted):
    held = read(path)
    mine = is_by(held, wanted["run_id"])
    if action == "acquire":
        acquire(path, held, wanted)
    elif action == "renew" and mine:
        write(path, held)
    elif (action == "release" and mine) or action == "break":
        path.unlink(missing_ok=True)


def answer(path, run_id):
    held = read(path)
    known = held if isinstance(held, dict) else None
    return {
        "file": str(path),
        "held": is_by(held, run_id),
        "by": known,
        "age_s": age_s(known) if known else None,
        "damaged": held == DAMAGED,
    }


def main():
    action, root, record = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    try:
        root.mkdir(parents=True, exist_ok=True)
        path = root / f"lock.{os.uname().nodename}.json"
        with path.with_suffix(".guard").open("a") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)
            act(action, path, record)
            print(json.dumps(answer(path, record["run_id"])))
    except OSError as error:
        print(f"{root}: the lock cannot be read or written: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
