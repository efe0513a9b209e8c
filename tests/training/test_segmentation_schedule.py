import pytest
import torch

from training.segmentation.args import parse
from training.segmentation.schedule import factor


def factors(command: str, epochs: list[int]) -> list[float]:
    options = parse(command.split())
    return [factor(options, epoch) for epoch in epochs]


def test_poly_is_the_published_curve():
    assert factors("", [0, 45, 90, 179]) == pytest.approx([1, 0.75, 0.5, 1 / 180])
    assert factors("--max_epoch 175 --poly_exp 2", [0, 35, 140]) == pytest.approx([1, 0.64, 0.04])
    assert factors("--poly_step 9 --rlx_off_epoch 9 --rescale 3", [45]) == [0.75]  # are of the other schedules


def test_poly2_doubles_the_exponent_from_its_step_on():
    poly2 = "--lr_schedule poly2 --max_epoch 200"
    assert factors(poly2, [0, 109, 110, 150]) == pytest.approx([1, 0.455, 0.45**2, 0.0625])
    assert factors(f"{poly2} --poly_exp 2 --poly_step 50", [49, 50, 100]) == pytest.approx([0.755**2, 0.75**4, 0.0625])
    assert factors(f"{poly2} --poly_step 0", [100]) == [0.25]


def test_scl_poly_begins_anew_with_a_rate_and_an_exponent_of_its_own():
    scl_poly = "--lr_schedule scl-poly --max_epoch 175 --rlx_off_epoch 100"
    assert factors(scl_poly, [0, 35, 99, 100]) == pytest.approx([1, 0.8, 76 / 175, 1])
    assert factors(scl_poly, [115, 174]) == pytest.approx([0.8**1.5, 75**-1.5])
    given = f"{scl_poly} --poly_exp 2 --rescale 0.5 --repoly 2"
    assert factors(given, [35, 100, 115]) == pytest.approx([0.64, 0.5, 0.32])
    assert factors("--lr_schedule scl-poly --rlx_off_epoch 0 --rescale 2", [0]) == [2]


@pytest.mark.parametrize("name", ["poly", "poly2", "scl-poly"])
@pytest.mark.parametrize("exponents", ["", "--poly_exp 0 --repoly 0"])
def test_every_schedule_stays_at_zero_after_its_last_epoch(name, exponents):
    command = f"--lr_schedule {name} --max_epoch 10 --poly_step 5 --rlx_off_epoch 5 {exponents}"
    last, *after = factors(command, [9, 10, 11, 500])
    assert last > 0 and after == [0, 0, 0]


def test_torch_steps_it_by_epoch():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.002)
    options = parse(["--max_epoch", "4", "--poly_exp", "2"])
    rates = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: factor(options, epoch))
    found = []
    for _ in range(6):
        found.append(rates.get_last_lr()[0])
        optimizer.step()
        rates.step()
    assert found == pytest.approx([0.002, 0.001125, 0.0005, 0.000125, 0, 0])
