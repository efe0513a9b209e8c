"""The measured loop: steps in windows between barriers, with every wait for data inside the time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from training.common.clocks import GpuIdle, gpu_memory_bytes, host_memory_bytes, read_bytes
from training.common.errors import TrainingError
from training.common.gang import Gang
from training.common.length import Length
from training.common.limits import input_limit
from training.common.loader import Batch, Loader
from training.common.report import Report
from training.common.step import Training
from training.wire.events import Body, ClockStart, ClockStop, EpochEnd, FirstBatch, Window

Rate = Callable[[int, int], float]

# A host is ahead of its GPU, but not where a window ends: there it waits for the GPU, which then waits for it
LEAST_WINDOW_STEPS = 50
LEAST_WINDOW_S = 5.0


@dataclass
class Loop:
    """One trial. `write` takes the events.

    `learning_rate` gives the rate for a step (from 0) of an epoch. A window begins where the one before it ended, so the
    windows' times add up to the trial's. `after_epoch` (validation, checkpoints) is called after every whole epoch and
    tells whether it did anything; the clock stands still meanwhile. `record` is told of every batch. `jpeg`: so are the
    images encoded. `window_steps` None: as many as take LEAST_WINDOW_S, and no fewer than LEAST_WINDOW_STEPS.
    """

    training: Training
    loader: Loader
    learning_rate: Rate
    gang: Gang
    length: Length
    window_steps: int | None
    write: Callable[[Body], None]
    report: Report
    first_epoch: int = 0
    after_epoch: Callable[[int], bool] = lambda _: False
    record: Callable[[int, int, Batch], None] = lambda *_: None
    jpeg: bool = False

    _steps: int = field(default=0, init=False)
    _images: int = field(default=0, init=False)
    _pass: int = field(default=0, init=False)
    _pass_steps: int = field(default=0, init=False)
    _pass_images: int = field(default=0, init=False)
    _pass_padded: int = field(default=0, init=False)
    _paused_bytes: int = field(default=0, init=False)
    _data_wait_s: float = field(default=0.0, init=False)
    _waiting_s: float = field(default=0.0, init=False)

    def run(self) -> None:
        """Runs the trial from ClockStart to ClockStop. Raises TrainingError on every rank if any loss is not finite."""
        self._idle = GpuIdle(self.gang.device)
        _, steps = self.gang.agree(False, self._proposal(0.0))
        self.report.begin(self.length.total_steps(self.loader.steps_per_pass))
        self._start = self._pass_start = opened = time.perf_counter()
        self.write(ClockStart(read_bytes=read_bytes()))
        while steps:
            epoch = self._epoch
            steps, opened = self._window(steps, opened)
            complete = self._maybe_end_pass(opened, last=not steps)
            if complete and steps:
                opened = self._pause(epoch, opened)
        self.loader.close()
        self._stop(opened - self._start)
        if complete:
            self.after_epoch(epoch)

    @property
    def _epoch(self) -> int:
        return self.first_epoch + self._pass

    def _window(self, steps: int, opened: float) -> tuple[int, float]:
        """Runs one window; returns the size of the next and when this one closed."""
        images, data_wait_s = 0, 0.0
        losses = torch.empty(steps, device=self.gang.device)
        first_step, first_pass_step, first_rate = self._steps, self._pass_steps, None
        self._idle.mark()
        for step in range(steps):
            rate = self.learning_rate(self._epoch, self._pass_steps)
            first_rate = rate if first_rate is None else first_rate
            self.training.set_learning_rate(rate)
            asked = time.perf_counter()
            batch = self.loader.next_batch()
            got = time.perf_counter()
            if self._steps == 0:
                self.write(FirstBatch(seconds=got - self._start))
            data_wait_s += got - asked
            self._idle.mark()
            losses[step] = self.training.step(batch.inputs)
            self._idle.mark()
            self.record(self._epoch, self._pass_steps, batch)
            self.report.step()
            images += batch.images
            self._pass_padded += batch.padded_images
            self._steps += 1
            self._pass_steps += 1
        values = losses.tolist()
        broken = next((i for i, value in enumerate(values) if not math.isfinite(value)), None)
        proposal = self._proposal(time.perf_counter() - self._start)
        anywhere, next_steps = self.gang.agree(broken is not None, proposal)
        closed = time.perf_counter()
        self._read_bytes = self._bytes_read()
        if broken is not None:
            rate = self.learning_rate(self._epoch, first_pass_step + broken)
            in_fp16 = self.training.precision.name == "fp16"
            raise TrainingError(
                f"the loss is {values[broken]} at step {first_step + broken} (learning rate {rate:g}): "
                "training has diverged; lower the learning rate (--lr), or begin with pretrained weights"
                + (", or give --precision bf16, which holds greater numbers" if in_fp16 else "")
            )
        if anywhere:
            raise TrainingError(
                f"another rank's loss stopped being finite by step {self._steps - 1}: training has diverged"
            )
        self._images += images
        self._data_wait_s += data_wait_s
        self._pass_images += images
        window = Window(
            pass_index=self._pass,
            epoch=self._epoch,
            step_first=first_step,
            steps=steps,
            images=images,
            seconds=closed - opened,
            data_wait_s=data_wait_s,
            gpu_idle_s=self._idle.take_s(),
            loss=sum(values) / steps,
            learning_rate=first_rate or 0.0,
            host_memory_bytes=host_memory_bytes(),
            gpu_memory_bytes=gpu_memory_bytes(self.gang.device),
        )
        self._waiting_s += window.waiting_s
        self.write(window)
        self.report.window(window, values, first_pass_step)
        return next_steps, closed

    def _maybe_end_pass(self, closed: float, last: bool) -> bool:
        """Ends the pass if its steps are done or the trial is; returns whether it was a whole one."""
        complete = self._pass_steps == self.loader.steps_per_pass
        if not (complete or last):
            return False
        self.write(
            EpochEnd(
                epoch=self._epoch,
                pass_index=self._pass,
                complete=complete,
                images=self._pass_images,
                padded_images=self._pass_padded,
                seconds=closed - self._pass_start,
                read_bytes=self._read_bytes,
            )
        )
        self.report.log([self._epoch], {"time": closed - self._pass_start})
        self._pass += 1
        self._pass_start = closed
        self._pass_steps = self._pass_images = self._pass_padded = 0
        return complete

    def _pause(self, epoch: int, closed: float) -> float:
        """Lets `after_epoch` run off the clock; returns when the next window opens."""
        before = read_bytes()
        if not self.after_epoch(epoch):
            return closed
        self.gang.barrier()
        opened = time.perf_counter()
        self._start += opened - closed
        self._pass_start = opened
        after = read_bytes()
        self._paused_bytes += after - before if before is not None and after is not None else 0
        return opened

    def _bytes_read(self) -> int | None:
        """The counter of bytes fetched, less what pauses fetched."""
        counted = read_bytes()
        return None if counted is None else counted - self._paused_bytes

    def _stop(self, seconds: float) -> None:
        usage = self.loader.usage()
        clock = ClockStop(
            steps=self._steps,
            images=self._images,
            seconds=seconds,
            distinct_files=usage.distinct_files,
            distinct_bytes=usage.distinct_bytes,
            first_pass_distinct_bytes=usage.first_pass_distinct_bytes,
            prefetched_images=usage.prefetched_images,
            read_bytes=self._read_bytes,
            file_wait_s=usage.file_wait_s,
        )
        self.write(clock)
        self.report.end()
        rate = self._images * self.gang.world_size / seconds
        self.report.say(f"done: {self._steps} steps in {seconds:.1f} s, {rate:.1f} images/s over all ranks")
        if limit := input_limit(clock, self._waiting_s, self._data_wait_s, self.jpeg):
            self.report.say(limit)
        self.report.log([], {"total time": seconds})

    def _proposal(self, seconds: float) -> int:
        """Steps of the next window: at most what is left of pass and trial; 0 ends it. `seconds`: of the trial so far."""
        steps_per_pass = self.loader.steps_per_pass
        left_in_pass = steps_per_pass - self._pass_steps or steps_per_pass
        left = self.length.steps_left(self._steps, seconds, steps_per_pass)
        return min(self.window_steps or self._fitting(seconds), left_in_pass, left)

    def _fitting(self, seconds: float) -> int:
        return max(LEAST_WINDOW_STEPS, math.ceil(LEAST_WINDOW_S * self._steps / seconds) if seconds else 0)
