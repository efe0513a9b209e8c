"""A shell that may mount file systems, unseen by others."""

from __future__ import annotations

import os
import subprocess

import pytest

MOUNTING = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c")


def need_mounting() -> None:
    """Skips the test where this user may not mount; fails it in CI, which must not do without."""
    if subprocess.run([*MOUNTING, "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode == 0:
        return
    reason = "no file system can be mounted here: `unshare --user --mount` is not allowed"
    if os.environ.get("CI") or os.environ.get("SCALEOUT_REQUIRE_NAMESPACES") == "1":
        pytest.fail(reason)
    pytest.skip(reason)
