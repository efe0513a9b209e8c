"""The settings of torch's DDP change how gradients travel, and not what they are."""

import os
import sys
from pathlib import Path

import pytest
import torch
from ranks import launch
from torch import nn

from training.common import process_exit
from training.common.ddp import Settings, choose
from training.common.errors import UserError
from training.common.gang import Gang

STEPS = 3


SETTINGS = {
    "plain": Settings(),
    "alike": Settings(bucket_mb=0.001, static_graph=True),
    "copied": Settings(bucket_view=False),
    "coarse": Settings(compress="bf16"),
}


def trained(gang: Gang, settings: Settings) -> list[torch.Tensor]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    wrapped = choose(gang, "auto", settings).wrap(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.randn(2, STEPS, 4, 8)[gang.rank]
    for step in range(STEPS):
        optimizer.zero_grad()
        wrapped(inputs[step]).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in model.parameters()]


def a_rank(out: Path) -> None:
    gang = Gang.join(int(os.environ["LOCAL_RANK"]), cuda=False, backend="gloo")
    weights = {name: trained(gang, settings) for name, settings in SETTINGS.items()}
    if gang.rank == 0:
        torch.save(weights, out)
    gang.leave()


def test_every_setting_gives_the_default_weights_and_compression_those_within_bf16s_rounding(tmp_path):
    launch(__file__, tmp_path / "weights")
    weights = torch.load(tmp_path / "weights")
    for name in ("alike", "copied"):
        for ours, theirs in zip(weights["plain"], weights[name], strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    assert not all(map(torch.equal, weights["plain"], weights["coarse"]))
    for ours, theirs in zip(weights["plain"], weights["coarse"], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=STEPS * 0.1 * 2**-7)


def test_apex_has_no_such_settings():
    gang = Gang(0, 0, 2, 0, torch.device("cuda", 0), "nccl")
    with pytest.raises(UserError, match="--ddp apex has no --ddp-bucket-mb, --ddp-compress; give --ddp torch"):
        choose(gang, "apex", Settings(bucket_mb=1.0, compress="bf16"))


if __name__ == "__main__":
    process_exit.run(lambda: a_rank(Path(sys.argv[1])))
