"""SGD under loss scaling. torch's fused SGD has the fault that `sgd` is for on the CPU as on GPUs."""

import functools

import pytest
import torch

from training.common.optimizer import sgd

SIDE = 64


def train(make, overflows=()):
    """Weights after four steps, and the momentum (None where there is none) after each."""
    torch.manual_seed(0)
    weights = torch.nn.Parameter(torch.randn(SIDE, SIDE))
    optimizer, scaler, momenta = make([{"params": [weights]}]), torch.amp.GradScaler("cpu"), []
    gradients = torch.randn(4, SIDE, SIDE)
    dirty = [torch.full((SIDE, SIDE), torch.nan) for _ in range(50)]
    del dirty  # what is allocated next is likely to begin as NaN
    for step, gradient in enumerate(gradients):
        optimizer.zero_grad(set_to_none=True)
        scaler.scale((weights * gradient).sum()).backward()
        if step in overflows:
            weights.grad[0, 0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        momentum = optimizer.state[weights].get("momentum_buffer")
        momenta.append(None if momentum is None else momentum.clone())
    return weights.detach(), momenta


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("overflows", [(), (0,), (0, 1), (2,)])
def test_it_steps_as_torchs_own_and_not_at_all_where_the_scaled_loss_overflows(fused, overflows):
    own, _ = train(functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9), overflows)
    ours, momenta = train(functools.partial(sgd, learning_rate=0.1, momentum=0.9, fused=fused), overflows)
    torch.testing.assert_close(ours, own, rtol=1e-6, atol=1e-6)
    if 0 in overflows:
        assert not momenta[0].any()
    if 2 in overflows:
        assert torch.equal(momenta[1], momenta[2])
