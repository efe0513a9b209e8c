"""What a run tells while it goes: lines for people or a progress bar, and the reference program's JSON stream."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tqdm import tqdm

from training.common.errors import UserError
from training.wire.events import Window


class Report:
    """Speaks on rank 0 only. A bar on a terminal, plain lines elsewhere, each handed on at once.

    `summary` takes lines as NVIDIA's DLLogger writes them (`DLLL {"type": "LOG", "step": …, "data": …}`). Losses are told for
    every `log_interval`-th step, once the window that holds it has closed: nothing waits for the GPU in between.
    """

    def __init__(self, rank: int, world_size: int, summary: Path | None = None, log_interval: int = 20) -> None:
        self._speaks, self._world_size, self._log_interval = rank == 0, world_size, log_interval
        self._bar: tqdm | None = None
        self._summary = _open(summary) if summary and self._speaks else None
        self._started = time.time()

    def say(self, line: str) -> None:
        """A line on stdout."""
        if not self._speaks:
            return
        if self._bar is None:
            print(line, flush=True)
        else:
            self._bar.write(line)

    def begin(self, steps: int | None) -> None:
        """The measured loop begins; `steps` is None where the trial's length is in seconds."""
        if self._speaks and sys.stdout.isatty():
            self._bar = tqdm(total=steps, unit="step", file=sys.stdout, dynamic_ncols=True)

    def step(self) -> None:
        if self._bar is not None:
            self._bar.update()

    def window(self, window: Window, losses: Sequence[float], pass_step: int) -> None:
        """A window has closed; `losses` are its steps', of which the first was number `pass_step` of its pass."""
        last = window.step_first + window.steps - 1
        self.say(
            f"epoch {window.epoch} steps {window.step_first}-{last}: "
            f"{window.images * self._world_size / window.seconds:.1f} images/s over all ranks, "
            f"waited {window.waiting_s:.2f} of {window.seconds:.2f} s for data, "
            f"loss {window.loss:.3f}, lr {window.learning_rate:g}"
        )
        for offset, loss in enumerate(losses):
            if (window.step_first + offset) % self._log_interval == 0:
                self.log([window.epoch, pass_step + offset], {"loss": loss})

    def end(self) -> None:
        """The measured loop is over."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def log(self, step: Sequence[int] | str, data: dict[str, Any]) -> None:
        """A line of the JSON stream: `step` is [epoch, step of the epoch], [epoch], [] or "PARAMETER"."""
        if self._summary is None:
            return
        now = time.time()
        line = {
            "timestamp": f"{now:.6f}",
            "elapsedtime": f"{now - self._started:.6f}",
            "datetime": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)),
            "type": "LOG",
            "step": step,
            "data": data,
        }
        self._summary.write(f"DLLL {json.dumps(line)}\n")
        self._summary.flush()

    def __enter__(self) -> Report:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if self._summary is not None:
            self._summary.close()


def three_digits(value: float | None) -> str:
    """`0.271`, or `-` for what is not defined."""
    return "-" if value is None else f"{value:.3f}"


def _open(path: Path) -> Any:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise UserError(f"--json-summary {path}: {error.strerror}; name a file in a folder that exists") from error
