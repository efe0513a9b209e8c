"""Debian packages that the local parts need, installed where they are missing and we may."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from scaleout.errors import ScaleoutError

Say = Callable[[str], None]


def install(package: str, *, what: str, size: str, say: Say) -> None:
    """`apt-get install`; the service that comes with the package is not started. Raises ScaleoutError."""
    if os.getuid() != 0 or shutil.which("apt-get") is None:
        raise ScaleoutError(f"{what} is not installed: install it (Debian: apt-get install {package})")
    say(f"{what} is missing: running `apt-get install {package}` (about {size} to download)")
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        for command in (["update"], ["install", "--yes", "--no-install-recommends", package]):
            done = subprocess.run(
                ["apt-get", "-q", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )
            if done.returncode != 0:
                raise ScaleoutError(f"`apt-get {' '.join(command)}` failed: {done.stderr.strip()[-500:]}")
    finally:
        if ours:
            policy.unlink()
