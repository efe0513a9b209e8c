"""Empties this node's page cache, and looks whether files of the data set are in it.

Usage: caches.py sync                       writes dirty pages back
       caches.py drop                       sync, then page cache, dentries and inodes (needs root)
       caches.py resident FOLDER COUNT SEED a seeded sample of files: how many of their pages are in memory

Each prints one JSON object. `drop` fails with a sentence when the kernel refuses. Residency is read by util-linux's
fincore as root; without privileges mincore(2) calls everything resident, so then it is null with a reason.
"""

import json
import os
import random
import subprocess
import sys
import time

DROP = "/proc/sys/vm/drop_caches"


def cached_bytes():
    with open("/proc/meminfo") as lines:
        fields = dict(line.split(":", 1) for line in lines)
    return int(fields["Cached"].split()[0]) * 1024


def sync():
    started = time.monotonic()
    os.sync()
    return {"sync_s": time.monotonic() - started}


def drop():
    answer = sync()
    before, started = cached_bytes(), time.monotonic()
    # Twice: a page that is in use for the moment (by another drop on the same machine, say) survives the first.
    for _ in range(2):
        with open(DROP, "w") as knob:
            knob.write("3")
    return {
        **answer,
        "drop_s": time.monotonic() - started,
        "cached_before_bytes": before,
        "cached_after_bytes": cached_bytes(),
        "t_wall_s": time.time(),
    }


def sample(folder, count, seed):
    files = sorted(os.path.join(base, name) for base, _, names in os.walk(folder) for name in names)
    return random.Random(seed).sample(files, min(count, len(files)))


def resident(folder, count, seed):
    files = sample(folder, count, seed)
    answer = {
        "folder": folder,
        "files": len(files),
        "bytes": sum(map(os.path.getsize, files)),
        "resident_bytes": None,
        "reason": None,
    }
    if not files:
        answer["reason"] = "no files to look at"
    elif os.geteuid() != 0:
        answer["reason"] = "residency can only be read as root"
    else:
        command = ["fincore", "--bytes", "--noheadings", "--raw", "--output", "RES", *files]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            answer["resident_bytes"] = sum(map(int, done.stdout.split()))
        except (OSError, subprocess.CalledProcessError) as error:
            answer["reason"] = f"fincore: {error}"
    return answer


def main():
    action = sys.argv[1]
    try:
        if action == "resident":
            answer = resident(sys.argv[2], int(sys.argv[3]), sys.argv[4])
        else:
            answer = {"sync": sync, "drop": drop}[action]()
    except OSError as error:
        who = f"as uid {os.geteuid()}"
        print(
            f"{action}: {error.filename or DROP}: {error.strerror} ({who}; dropping caches needs root)", file=sys.stderr
        )
        return 1
    print(json.dumps(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
