"""The settings of torch's DDP change how gradients travel, and not what they are."""

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from training.common.ddp import Settings, wrap
from training.common.errors import UserError
from training.common.gang import Gang

STEPS = 3


def trained(rank, store, settings, out):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    wrapped = wrap(model, Gang(rank, rank, 2, 0, torch.device("cpu"), "gloo"), "auto", settings).model
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs = torch.randn(2, STEPS, 4, 8)[rank]
    for step in range(STEPS):
        optimizer.zero_grad()
        wrapped(inputs[step]).square().mean().backward()
        optimizer.step()
    if rank == 0:
        torch.save([parameter.detach() for parameter in model.parameters()], out)
    dist.destroy_process_group()


def weights(folder, settings):
    folder.mkdir()
    mp.spawn(trained, (str(folder / "store"), settings, str(folder / "weights")), nprocs=2)
    return torch.load(folder / "weights")


def test_every_setting_gives_the_default_weights_and_compression_those_within_bf16s_rounding(tmp_path):
    plain = weights(tmp_path / "plain", Settings())
    for name, settings in {
        "alike": Settings(bucket_mb=0.001, static_graph=True),
        "copied": Settings(bucket_view=False),
    }.items():
        for ours, theirs in zip(plain, weights(tmp_path / name, settings), strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-7)
    coarse = weights(tmp_path / "coarse", Settings(compress="bf16"))
    assert not all(map(torch.equal, plain, coarse))
    for ours, theirs in zip(plain, coarse, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=STEPS * 0.1 * 2**-7)


def test_apex_has_no_such_settings():
    gang = Gang(0, 0, 2, 0, torch.device("cuda", 0), "nccl")
    with pytest.raises(UserError, match="--ddp apex has no --ddp-bucket-mb, --ddp-compress; give --ddp torch"):
        wrap(nn.Linear(1, 1), gang, "apex", Settings(bucket_mb=1.0, compress="bf16"))
