"""The measured loop and the warm-up, with a model of a few weights on the CPU."""

import dataclasses
import math
import random
import time

import numpy as np
import pytest
import torch

from training.common.errors import TrainingError
from training.common.gang import Gang
from training.common.length import Length
from training.common.loader import Batch, Usage
from training.common.loop import LEAST_WINDOW_STEPS, Loop
from training.common.precision import Precision
from training.common.report import Report
from training.common.step import Training
from training.common.warmup import warm_up
from training.wire.events import ClockStart, ClockStop, EpochEnd, FirstBatch, Window

CPU = torch.device("cpu")
ALONE = Gang(0, 0, 1, 0, CPU, None)
BATCH = 4


class Source:
    """Batches of 4 images, the last of a pass with one padded; each takes `wait_s`."""

    def __init__(self, steps_per_pass, wait_s=0.0, broken_step=None):
        self.steps_per_pass = steps_per_pass
        self._wait_s = wait_s
        self._broken_step = broken_step
        self._step = 0

    def next_batch(self):
        time.sleep(self._wait_s)
        value = math.nan if self._step == self._broken_step else 1.0
        self._step += 1
        return Batch((torch.full((BATCH, 3), value),), BATCH, int(self._step % self.steps_per_pass == 0))

    def usage(self):
        return Usage(7, 700, 600, 8, 0.5)

    def close(self):
        self.closed = True


def make_training():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    precision = Precision.choose("auto", True, True, CPU)
    return Training(model, optimizer, precision, lambda inputs: (model(inputs[0]) ** 2).mean() + inputs[0].sum() * 0)


def rate(epoch, step):
    return 0.1 if epoch == 0 else 0.01


def run(source, length, window_steps=50, **more):
    training, events = make_training(), []
    Loop(training, source, rate, ALONE, length, window_steps, events.append, Report(1, 1), **more).run()
    return events


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def test_windows_end_with_the_pass_and_add_up_to_the_trial():
    events = run(Source(steps_per_pass=5), Length(epochs=2), window_steps=3)
    windows, (stop,) = of(Window, events), of(ClockStop, events)
    assert [(w.pass_index, w.step_first, w.steps) for w in windows] == [(0, 0, 3), (0, 3, 2), (1, 5, 3), (1, 8, 2)]
    assert (stop.steps, stop.images) == (10, 40) == (sum(w.steps for w in windows), sum(w.images for w in windows))
    assert stop.seconds == pytest.approx(sum(w.seconds for w in windows))
    assert (stop.distinct_files, stop.distinct_bytes, stop.prefetched_images) == (7, 700, 8)
    assert stop.first_pass_distinct_bytes == 600
    ends = of(EpochEnd, events)
    assert [(e.epoch, e.complete, e.images, e.padded_images) for e in ends] == [(0, True, 20, 1), (1, True, 20, 1)]
    assert sum(e.seconds for e in ends) == pytest.approx(stop.seconds)
    (start,) = of(ClockStart, events)
    assert start.read_bytes <= ends[0].read_bytes <= ends[1].read_bytes == stop.read_bytes
    assert [round(w.learning_rate, 6) for w in windows] == [0.1, 0.1, 0.01, 0.01]


def test_short_steps_make_longer_windows_for_a_gpu_runs_out_of_work_where_one_ends(monkeypatch):
    monkeypatch.setattr("training.common.loop.LEAST_WINDOW_S", 0.5)
    windows = of(Window, run(Source(10_000, wait_s=0.001), Length(steps=1500), window_steps=None))
    assert windows[0].steps == LEAST_WINDOW_STEPS < windows[1].steps
    assert sum(window.steps for window in windows) == 1500


def test_long_steps_make_windows_of_no_more_steps(monkeypatch):
    monkeypatch.setattr("training.common.loop.LEAST_WINDOW_S", 0.5)
    windows = of(Window, run(Source(1000, wait_s=0.02), Length(steps=120), window_steps=None))
    assert [window.steps for window in windows] == [50, 50, 20]


def test_events_come_in_order():
    kinds = [type(event) for event in run(Source(2), Length(steps=3))]
    assert kinds == [ClockStart, FirstBatch, Window, EpochEnd, Window, EpochEnd, ClockStop]


def test_a_trial_that_ends_within_a_pass_says_so():
    ends = of(EpochEnd, run(Source(4), Length(steps=6)))
    assert [(e.complete, e.images, e.padded_images) for e in ends] == [(True, 16, 1), (False, 8, 0)]


def test_waiting_for_data_is_inside_the_time():
    events = run(Source(3, wait_s=0.05), Length(steps=3))
    (window,), (first,) = of(Window, events), of(FirstBatch, events)
    assert window.seconds >= window.data_wait_s >= 0.15
    assert first.seconds >= 0.05
    assert window.gpu_idle_s is None and window.gpu_memory_bytes is None and window.host_memory_bytes > 0


def test_no_window_begins_after_the_seconds_are_over():
    events = run(Source(1000, wait_s=0.02), Length(seconds=2))
    windows, (stop,) = of(Window, events), of(ClockStop, events)
    assert stop.seconds - windows[-1].seconds < 2 <= stop.seconds
    assert windows[0].steps == 1 and stop.steps > 1


def test_a_loss_that_is_not_finite_stops_the_run_and_names_the_step():
    events = []
    source = Source(50, broken_step=7)
    loop = Loop(make_training(), source, rate, ALONE, Length(steps=20), 5, events.append, Report(1, 1))
    with pytest.raises(TrainingError, match=r"the loss is nan at step 7 \(learning rate 0\.1\)"):
        loop.run()
    assert [w.step_first for w in of(Window, events)] == [0] and not of(ClockStop, events)


def test_a_loss_that_is_not_finite_in_fp16_is_told_of_a_wider_format():
    training = dataclasses.replace(
        make_training(), precision=Precision("fp16", CPU, torch.amp.GradScaler("cpu", enabled=False))
    )
    loop = Loop(training, Source(50, broken_step=1), rate, ALONE, Length(steps=5), 5, [].append, Report(1, 1))
    with pytest.raises(
        TrainingError, match=r"pretrained weights, or give --precision bf16, which holds greater numbers"
    ):
        loop.run()


def test_the_rate_of_every_step_is_that_of_its_epoch_and_step():
    asked, seen = [], []

    def noted(epoch, step):
        asked.append((epoch, step))
        return 0.5 ** len(asked)

    training = make_training()
    inner = training.optimizer.step
    training.optimizer.step = lambda: (seen.append(training.optimizer.param_groups[0]["lr"]), inner())
    Loop(training, Source(2), noted, ALONE, Length(epochs=2), 50, [].append, Report(1, 1), first_epoch=3).run()
    assert asked == [(3, 0), (3, 1), (4, 0), (4, 1)]
    assert seen == [0.5, 0.25, 0.125, 0.0625]


def test_the_clock_stands_still_after_an_epoch_while_it_is_evaluated():
    calls = []

    def evaluate(epoch):
        calls.append(epoch)
        time.sleep(2)
        return True

    events = run(Source(2, wait_s=0.01), Length(epochs=3), first_epoch=4, after_epoch=evaluate)
    (stop,) = of(ClockStop, events)
    assert calls == [4, 5, 6] and stop.seconds < 2
    assert stop.seconds == pytest.approx(sum(w.seconds for w in of(Window, events)))
    assert [(e.epoch, e.pass_index) for e in of(EpochEnd, events)] == [(4, 0), (5, 1), (6, 2)]
    assert all(e.seconds < 2 for e in of(EpochEnd, events))


def test_a_part_of_an_epoch_is_not_evaluated():
    calls = []
    run(Source(2), Length(steps=3), after_epoch=calls.append)
    assert calls == [0]


def test_every_batch_is_recorded_and_the_loader_closed():
    source, batches = Source(2), []
    run(source, Length(steps=3), record=lambda epoch, step, batch: batches.append((epoch, step, batch.images)))
    assert batches == [(0, 0, 4), (0, 1, 4), (1, 0, 4)] and source.closed


def state(training):
    return [tensor.clone() for tensor in training.model.state_dict().values()]


def test_a_warm_up_leaves_no_trace():
    torch.manual_seed(0)
    training = make_training()
    training.step((torch.rand(BATCH, 3),))  # so that there is momentum to keep
    before, momentum = state(training), training.optimizer.state_dict()["state"][0]["momentum_buffer"].clone()
    inputs = (torch.rand(BATCH, 3),)
    randoms = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    event = warm_up(training, inputs, BATCH, ALONE, warmup_steps=2, synthetic_steps=3)
    assert (event.warmup_steps, event.steps, event.images) == (2, 3, 12)
    assert event.seconds > 0 and event.warmup_s > 0
    assert training.optimizer.param_groups[0]["lr"] == 0.1
    assert all(torch.equal(a, b) for a, b in zip(before, state(training), strict=True))
    assert torch.equal(momentum, training.optimizer.state_dict()["state"][0]["momentum_buffer"])
    assert torch.equal(randoms[0], torch.get_rng_state())
    assert np.array_equal(randoms[1], np.random.get_state()[1]) and randoms[2] == random.getstate()


def test_training_after_a_warm_up_is_training_without_one():
    results = []
    for warm in (False, True):
        torch.manual_seed(0)
        training = make_training()
        inputs = (torch.rand(BATCH, 3),)
        if warm:
            warm_up(training, (torch.ones(BATCH, 3),), BATCH, ALONE, warmup_steps=2, synthetic_steps=1)
        losses = [training.step(inputs).item() for _ in range(3)]
        results.append((losses, state(training)))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))
