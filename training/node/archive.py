"""Writes a folder as a tar archive to standard output, never more than the other end has asked for.

Usage: archive.py FOLDER    standard input has lines with the numbers of further bytes that may come

SSH's own flow control is not enough: the library at the other end goes on granting bytes while it holds unread ones. A file
that grows meanwhile comes as long as it was. Exit status 0 only after the whole archive, else tar's.
"""

import subprocess
import sys

# Hard links come as files, and holes as holes.
SOME_FILES_CHANGED = 1
TAR = ["tar", "--create", "--file=-", "--sparse", "--hard-dereference"]
MOST_BYTES = 65536


def forward(archive):
    """False when the other end has gone."""
    granted = 0
    while True:
        while granted <= 0:
            line = sys.stdin.readline()
            if not line:
                return False
            granted += int(line)
        block = archive.read1(min(granted, MOST_BYTES))
        if not block:
            return True
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()
        granted -= len(block)


def main():
    with subprocess.Popen(
        [*TAR, f"--directory={sys.argv[1]}", "."], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    ) as tar:
        try:
            whole = forward(tar.stdout)
        except BrokenPipeError:
            whole = False
        if not whole:
            tar.kill()
        status = tar.wait()
    if status == SOME_FILES_CHANGED and whole:
        return 0
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
