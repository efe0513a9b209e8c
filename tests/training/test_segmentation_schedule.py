import pytest
import torch

from training.common.errors import UserError
from training.segmentation.schedule import poly, poly_step_note, schedule


def test_poly_is_the_published_curve():
    assert [poly(epoch, 180, 1.0) for epoch in (0, 45, 90, 179)] == pytest.approx([1, 0.75, 0.5, 1 / 180])
    assert [poly(epoch, 175, 2.0) for epoch in (0, 35, 140)] == pytest.approx([1, 0.64, 0.04])


def test_poly_stays_at_zero_after_its_last_epoch():
    assert [poly(epoch, 10, 0.9) for epoch in (10, 11, 500)] == [0, 0, 0]


def test_torch_steps_it_by_epoch():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.002)
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule("poly", 4, 2.0))
    found = []
    for _ in range(6):
        found.append(rates.get_last_lr()[0])
        optimizer.step()
        rates.step()
    assert found == pytest.approx([0.002, 0.001125, 0.0005, 0.000125, 0, 0])


@pytest.mark.parametrize("name", ["poly2", "scl-poly"])
def test_the_other_schedules_of_the_reference_are_refused(name):
    with pytest.raises(UserError, match=f"--lr_schedule {name} is not implemented here; poly is"):
        schedule(name, 180, 1.0)


def test_an_unknown_schedule_is_refused():
    with pytest.raises(UserError, match="--lr_schedule cosine is not known; use poly"):
        schedule("cosine", 180, 1.0)


def test_poly_step_is_ignored_with_a_reason():
    assert poly_step_note(None) is None
    assert "--poly_step is ignored" in poly_step_note(110)
