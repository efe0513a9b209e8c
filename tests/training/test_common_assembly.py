"""How a step is run: compiled, captured, or neither, and what is said about it."""

import pytest
import torch
from torch import nn

from training.common import compiler
from training.common.assembly import assemble, is_one_graph
from training.common.errors import UserError
from training.common.gang import Gang
from training.common.optimizer import sgd
from training.common.step import Snapshot
from training.ssd.args import parse

ALONE = Gang(0, 0, 1, 0, torch.device("cpu"), None)


def make_assembly(*flags):
    options = parse(["--data", "x", *flags]).common
    return assemble(
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)),
        ALONE,
        options,
        mixed_precision=True,
        dilated=False,
        launch_bound=True,
        optimizer=lambda model, fused: sgd([{"params": list(model.parameters())}], 0.1, 0.9, fused),
        loss=lambda model, inputs: model(inputs[0]).square().mean(),
    )


def test_on_the_cpu_nothing_is_compiled_or_captured_by_itself():
    assembly = make_assembly()
    assert assembly.how == "not compiled: the default on the CPU; kernels launched one by one"
    assert assembly.training.graph is None
    with pytest.raises(UserError, match="--cuda-graph: there is no GPU; leave it out"):
        make_assembly("--cuda-graph")


def is_graph_on_a_gpu(*flags, backend="nccl", ddp="torch", launch_bound=True):
    gang = Gang(0, 0, 2, 0, torch.device("cuda", 0), backend)
    updates = sgd([{"params": [nn.Parameter(torch.zeros(1))]}], 0.1, 0.9, fused=False)
    return is_one_graph(parse(["--data", "x", *flags]).common, launch_bound, gang, ddp, updates)


@pytest.mark.parametrize(
    ("backend", "ddp", "flags", "why_not"),
    [
        ("gloo", "torch", [], "an exchange over gloo cannot be captured"),
        ("nccl", "apex", [], r"apex's DDP cannot be captured \(torch's can: --ddp torch\)"),
        ("nccl", "torch", ["--compile", "reduce-overhead"], "--compile reduce-overhead makes graphs of its own"),
    ],
)
def test_what_cannot_be_captured_is_refused_by_its_name_and_not_captured_by_default(backend, ddp, flags, why_not):
    with pytest.raises(UserError, match=f"^--cuda-graph: {why_not}; leave it out$"):
        is_graph_on_a_gpu("--cuda-graph", *flags, backend=backend, ddp=ddp)
    assert not is_graph_on_a_gpu(*flags, backend=backend, ddp=ddp)


def test_a_step_that_is_bound_by_launching_is_one_graph_on_a_gpu_unless_it_shall_run_as_it_is():
    assert is_graph_on_a_gpu()
    assert not is_graph_on_a_gpu(launch_bound=False)
    for as_it_is in ("--no-cuda-graph", "--no-compile", "--deterministic"):
        assert not is_graph_on_a_gpu(as_it_is)
        assert as_it_is == "--no-cuda-graph" or is_graph_on_a_gpu(as_it_is, "--cuda-graph")
    assert is_graph_on_a_gpu("--cuda-graph", launch_bound=False)


def test_a_gpu_without_a_c_compiler_or_pythons_headers_does_without_compilation(monkeypatch, tmp_path):
    gpu = torch.device("cuda", 0)
    monkeypatch.setattr("sysconfig.get_paths", lambda: {"include": str(tmp_path)})
    monkeypatch.setenv("CC", "gcc")
    assert compiler.why_not(gpu) == f"there is no {tmp_path}/Python.h (python3-dev has it)"
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert compiler.why_not(gpu) == "there is no C compiler"


@pytest.mark.parametrize("flag", [["--compile"], ["--compile", "reduce-overhead"]])
def test_compilation_that_is_asked_for_and_cannot_be_is_refused_on_the_cpu_too(monkeypatch, tmp_path, flag):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    mode = flag[-1].replace("--compile", "default")
    with pytest.raises(
        UserError, match=rf"--compile {mode}: there is no C\+\+ compiler; install it, or give --no-compile"
    ):
        make_assembly(*flag)


def test_a_snapshot_puts_everything_back_in_its_place():
    training = make_assembly().training
    images = torch.randn(2, 3, 8, 8)
    training.step((images,))
    tensors = [*training.model.state_dict().values()]
    tensors += [state["momentum_buffer"] for state in training.optimizer.state.values()]
    before = [tensor.clone() for tensor in tensors]
    snapshot = Snapshot(training)
    training.set_learning_rate(0.5)
    training.step((images,))
    assert not all(map(torch.equal, tensors, before))
    snapshot.restore()
    assert all(map(torch.equal, tensors, before))
    momenta = [state["momentum_buffer"] for state in training.optimizer.state.values()]
    assert all(own is tensor for own, tensor in zip(momenta, tensors[-4:], strict=True))
    assert training.optimizer.param_groups[0]["lr"] == 0.1


def test_momentum_of_a_warm_up_becomes_zero_in_its_place_where_a_graph_reads_it():
    training, images = make_assembly().training, torch.randn(2, 3, 8, 8)
    snapshot = Snapshot(training)
    training.step((images,))
    made = [state["momentum_buffer"] for state in training.optimizer.state.values()]
    assert len(made) == 4 and any(momentum.any() for momentum in made)
    snapshot.restore()
    kept = [state["momentum_buffer"] for state in training.optimizer.state.values()]
    assert all(own is tensor and not own.any() for own, tensor in zip(kept, made, strict=True))


def test_a_rate_that_a_graph_reads_is_changed_in_place():
    training = make_assembly().training
    (group,) = training.optimizer.param_groups
    rate = group["lr"] = torch.tensor(0.1)
    training.set_learning_rate(0.25)
    assert group["lr"] is rate and rate.item() == 0.25


def test_the_log_names_the_flag_that_keeps_a_step_from_being_compiled():
    assert make_assembly("--no-compile").how.startswith("not compiled: --no-compile;")
