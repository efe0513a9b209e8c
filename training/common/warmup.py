"""Compute on synthetic batches before the loader opens a file, without leaving a trace in what is trained."""

from __future__ import annotations

import time

from training.common.clocks import forget_peak
from training.common.gang import Gang
from training.common.step import Inputs, Snapshot, Training
from training.wire.events import Synthetic


def warm_up(
    training: Training, inputs: Inputs, batch_per_gpu: int, gang: Gang, warmup_steps: int, synthetic_steps: int
) -> Synthetic:
    """Runs the steps on one synthetic batch and puts weights, buffers, optimiser and random states back.

    They update at a rate of 0: noise must not teach a model until it overflows fp16. What is done once, compiling the
    step and capturing it, is done here and counted to `warmup_s`.
    `seconds` of the result lies between two barriers. It is 0 when `synthetic_steps` is: then nothing was timed.
    """
    before = Snapshot(training)
    training.set_learning_rate(0.0)
    gang.barrier()
    started = time.perf_counter()
    training.capture(inputs)
    for step in range(warmup_steps):
        training.step(inputs)
        if training.own_graphs and step == 0:
            forget_peak(gang.device)  # before the second step, which captures: replays allocate nothing
    gang.barrier()
    warm = time.perf_counter()
    for _ in range(synthetic_steps):
        training.step(inputs)
    gang.barrier()
    seconds = time.perf_counter() - warm if synthetic_steps else 0.0
    before.restore()
    if not (training.graph or training.own_graphs):  # else it was forgotten before the capture
        forget_peak(gang.device)
    return Synthetic(
        warmup_steps=warmup_steps,
        warmup_s=warm - started,
        steps=synthetic_steps,
        images=synthetic_steps * batch_per_gpu,
        seconds=seconds,
    )
