"""Which images which rank consumes."""

from collections import Counter

import numpy as np
import pytest

from training.common.loader import Ledger, Plan
from training.common.sampler import Sampler

MACHINES = [(0, 1), (0, 1), (2, 3), (2, 3)]


def epoch_of(sampler, epoch):
    return [sampler.share(epoch, step) for step in range(sampler.steps_per_pass)]


@pytest.mark.parametrize("images", [5, 6, 13, 31])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
@pytest.mark.parametrize("batch", [1, 2, 4])
def test_every_image_once_an_epoch_apart_from_counted_padding(images, ranks, batch):
    samplers = [Sampler(images, rank, ranks, batch, seed=1) for rank in range(ranks)]
    assert len({sampler.steps_per_pass for sampler in samplers}) == 1
    for epoch in range(3):
        shares = [share for sampler in samplers for share in epoch_of(sampler, epoch)]
        real = Counter(item for share in shares for item in share.items[: batch - share.padded].tolist())
        assert real == Counter(range(images))
        assert sum(share.padded for share in shares) == sum(len(share.items) for share in shares) - images
        assert all(len(share.items) == batch for share in shares)


def test_the_global_batches_are_the_same_on_any_number_of_ranks():
    def global_batches(ranks):
        samplers = [Sampler(29, rank, ranks, 12 // ranks, seed=3) for rank in range(ranks)]
        steps = zip(*(epoch_of(sampler, 2) for sampler in samplers), strict=True)
        return [np.concatenate([share.items for share in step]).tolist() for step in steps]

    assert global_batches(1) == global_batches(2) == global_batches(3) == global_batches(4)


def test_random_numbers_belong_to_the_place_in_the_epoch_and_not_to_the_rank():
    def numbers(ranks, step):
        samplers = [Sampler(29, rank, ranks, 12 // ranks, seed=3) for rank in range(ranks)]
        return np.concatenate([sampler.share(1, step).uniforms(7) for sampler in samplers])

    for step in range(2):
        assert np.array_equal(numbers(1, step), numbers(3, step))
    assert not np.array_equal(numbers(1, 0), numbers(1, 1))
    first = numbers(1, 0)
    assert first.shape == (12, 7) and len(np.unique(first)) == first.size
    assert first.min() >= 0 and first.max() < 1


def test_a_file_is_counted_once_on_its_machine():
    def drawn(random, epoch):
        return random.integers(0, 6, 24)

    samplers = [Sampler(24, rank, 4, 2, 3, drawn, machine_ranks=machine) for rank, machine in enumerate(MACHINES)]
    ledgers = [Ledger(6, 0) for _ in samplers]
    seen = {machine: set() for machine in MACHINES}
    for epoch in range(2):
        for step in range(samplers[0].steps_per_pass):
            for machine, sampler, ledger in zip(MACHINES, samplers, ledgers, strict=True):
                share = sampler.share(epoch, step)
                seen[machine] |= set(share.items.tolist())
                ledger.hand_out(Plan(share, [], ([],), ()), [10**item for item in share.items.tolist()])
        for machine in set(MACHINES):
            counted = [ledger.usage(0) for ledger, of in zip(ledgers, MACHINES, strict=True) if of == machine]
            assert sum(usage.distinct_files for usage in counted) == len(seen[machine])
            assert sum(usage.distinct_bytes for usage in counted) == sum(10**item for item in seen[machine])


def test_epochs_and_seeds_differ_and_an_epoch_can_be_begun_anywhere():
    one, other = Sampler(50, 0, 1, 50, seed=1), Sampler(50, 0, 1, 50, seed=2)
    orders = [one.share(epoch, 0).items.tolist() for epoch in range(3)] + [other.share(0, 0).items.tolist()]
    assert len({tuple(order) for order in orders}) == 4
    assert Sampler(50, 0, 1, 50, seed=1).share(2, 0).items.tolist() == orders[2]
    uniforms = [tuple(s.share(e, 0).uniforms(1)[0]) for s in (one, other) for e in range(2)]
    assert len(set(uniforms)) == 4


def test_an_epochs_order_can_be_drawn_otherwise():
    sampler = Sampler(4, 0, 1, 3, seed=1, draw=lambda random, epoch: np.array([7, 7, 8, 9]))
    assert [share.items.tolist() for share in epoch_of(sampler, 0)] == [[7, 7, 8], [9, 7, 7]]
    assert [share.padded for share in epoch_of(sampler, 0)] == [0, 2]
