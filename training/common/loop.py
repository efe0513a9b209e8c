"""The measured loop: steps in windows between barriers, with every wait for data inside the time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch.optim.lr_scheduler import LRScheduler

from training.common.clocks import GpuIdle, gpu_memory_bytes, host_memory_bytes, read_bytes
from training.common.console import Console
from training.common.errors import TrainingError
from training.common.gang import Gang
from training.common.length import Length
from training.common.loader import Loader
from training.common.step import Training
from training.wire.events import Body, ClockStart, ClockStop, EpochEnd, FirstBatch, Window


@dataclass
class Loop:
    """One trial. `write` takes the events.

    A window begins where the one before it ended, so the windows' times add up to the trial's.
    """

    training: Training
    loader: Loader
    schedule: LRScheduler
    gang: Gang
    length: Length
    window_steps: int
    write: Callable[[Body], None]
    console: Console

    _steps: int = field(default=0, init=False)
    _images: int = field(default=0, init=False)
    _pass: int = field(default=0, init=False)
    _pass_steps: int = field(default=0, init=False)
    _pass_images: int = field(default=0, init=False)
    _pass_padded: int = field(default=0, init=False)

    def run(self) -> None:
        """Runs the trial from ClockStart to ClockStop. Raises TrainingError on every rank if any loss is not finite."""
        self._idle = GpuIdle(self.gang.device)
        _, steps = self.gang.agree(False, self._proposal(0.0))
        self._start = self._pass_start = opened = time.perf_counter()
        self.write(ClockStart(read_bytes=read_bytes()))
        while steps:
            steps, closed = self._window(steps, opened)
            self._maybe_end_pass(closed, last=not steps)
            opened = closed
        usage = self.loader.usage()
        seconds = opened - self._start
        self.write(
            ClockStop(
                steps=self._steps,
                images=self._images,
                seconds=seconds,
                distinct_files=usage.distinct_files,
                distinct_bytes=usage.distinct_bytes,
                first_pass_distinct_bytes=usage.first_pass_distinct_bytes,
                prefetched_images=usage.prefetched_images,
                read_bytes=self._read_bytes,
            )
        )
        rate = self._images * self.gang.world_size / seconds
        self.console.say(f"done: {self._steps} steps in {seconds:.1f} s, {rate:.1f} images/s over all ranks")

    def _window(self, steps: int, opened: float) -> tuple[int, float]:
        """Runs one window; returns the size of the next and when this one closed."""
        images, data_wait_s = 0, 0.0
        losses = torch.empty(steps, device=self.gang.device)
        learning_rate = float(self.schedule.get_last_lr()[0])
        first_step, epoch = self._steps, self._pass
        self._idle.mark()
        for step in range(steps):
            asked = time.perf_counter()
            batch = self.loader.next_batch()
            got = time.perf_counter()
            if self._steps == 0:
                self.write(FirstBatch(seconds=got - self._start))
            data_wait_s += got - asked
            self._idle.mark()
            losses[step] = self.training.step(batch.inputs)
            self._idle.mark()
            images += batch.images
            self._pass_padded += batch.padded_images
            self._steps += 1
            self._pass_steps += 1
        values = losses.tolist()
        broken = next((i for i, value in enumerate(values) if not math.isfinite(value)), None)
        proposal = self._proposal(time.perf_counter() - self._start)
        anywhere, next_steps = self.gang.agree(broken is not None, proposal)
        closed = time.perf_counter()
        self._read_bytes = read_bytes()
        if broken is not None:
            raise TrainingError(
                f"the loss is {values[broken]} at step {first_step + broken} (learning rate {learning_rate:g}): "
                "training has diverged; lower --learning-rate"
            )
        if anywhere:
            raise TrainingError(
                f"another rank's loss stopped being finite by step {self._steps - 1}: training has diverged"
            )
        self._images += images
        self._pass_images += images
        window = Window(
            pass_index=self._pass,
            epoch=epoch,
            step_first=first_step,
            steps=steps,
            images=images,
            seconds=closed - opened,
            data_wait_s=data_wait_s,
            gpu_idle_s=self._idle.take_s(),
            loss=sum(values) / steps,
            learning_rate=learning_rate,
            host_memory_bytes=host_memory_bytes(),
            gpu_memory_bytes=gpu_memory_bytes(self.gang.device),
        )
        self.write(window)
        self.console.say(
            f"epoch {epoch} steps {first_step}-{self._steps - 1}: {images * self.gang.world_size / window.seconds:.1f} "
            f"images/s over all ranks, waited {data_wait_s:.2f} of {window.seconds:.2f} s for data, "
            f"loss {window.loss:.3f}, lr {learning_rate:g}"
        )
        return next_steps, closed

    def _maybe_end_pass(self, closed: float, last: bool) -> None:
        complete = self._pass_steps == self.loader.steps_per_pass
        if not (complete or last):
            return
        self.write(
            EpochEnd(
                epoch=self._pass,
                pass_index=self._pass,
                complete=complete,
                images=self._pass_images,
                padded_images=self._pass_padded,
                seconds=closed - self._pass_start,
                read_bytes=self._read_bytes,
            )
        )
        if complete:
            self.schedule.step()
        self._pass += 1
        self._pass_start = closed
        self._pass_steps = self._pass_images = self._pass_padded = 0

    def _proposal(self, seconds: float) -> int:
        """Steps of the next window: at most `window_steps`, what is left of pass and trial; 0 ends it."""
        steps_per_pass = self.loader.steps_per_pass
        left_in_pass = steps_per_pass - self._pass_steps or steps_per_pass
        left = self.length.steps_left(self._steps, seconds, steps_per_pass)
        return min(self.window_steps, left_in_pass, left)
