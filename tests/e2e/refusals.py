"""Sweeps that are refused in a sentence. `pytest -rP tests/e2e/test_bad_*.py` prints the table of mistakes and sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from world import World

QUICK: dict[str, Any] = {"preset": "quick", "length": {"steps": 2}, "window_steps": 1, "nodes": [1]}


def refused(world: World, form: dict[str, Any], sentence: str, **environment: str) -> str:
    """Runs the sweep; it must fail with the sentence and without a traceback, and must have launched nothing."""
    before = launches(world)
    status, output = world.run(form, **environment)
    print(f"| {sentence} |")
    assert status == 1, output[-3000:]
    assert sentence in output, output[-3000:]
    assert "Traceback" not in output
    assert launches(world) == before
    return output


def launches(world: World) -> list[Path]:
    return [launch for sweep in world.sweeps() for launch in sorted(sweep.glob("*/launch.json"))]


def with_local(config: Path, old: str, new: str) -> dict[str, str]:
    path = config / "clusters" / "local.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return {"SCALEOUT_CONFIG_DIR": str(config)}
