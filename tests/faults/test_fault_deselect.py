"""Where namespaces are refused, the tests are counted, and fail where they must not be missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

# What root may do in a container without it.
WITHOUT_RIGHT = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("environment", "status", "said"),
    [
        ({}, 0, "tests of faults were deselected: hosts in namespaces take root and util-linux"),
        ({"CI": "true"}, 4, "CI must not do without"),
        ({"SCALEOUT_REQUIRE_NAMESPACES": "1"}, 4, "CI must not do without"),
    ],
)
def test_without_namespaces(environment: dict[str, str], status: int, said: str) -> None:
    ours = {key: value for key, value in os.environ.items() if key not in ("CI", "SCALEOUT_REQUIRE_NAMESPACES")}
    done = subprocess.run(
        [*WITHOUT_RIGHT, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "quick", str(Path(__file__).parent)],
        env={**ours, **environment}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
