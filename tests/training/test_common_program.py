"""The frame of a program, its flags' helpers and the choice of DDP."""

import sys

import pytest
import torch

from training.common import facts, life
from training.common.ddp import choose, find_apex
from training.common.errors import TrainingError, UserError
from training.common.gang import Gang
from training.common.length import Length
from training.common.precision import Precision
from training.common.program import run
from training.wire.events import RunEnd, read_events

ALONE = Gang(0, 0, 1, 0, torch.device("cpu"), None)


def ends(tmp_path, rank=0):
    return [event.body for event in read_events(tmp_path / f"rank{rank}" / "events.jsonl")]


def test_a_run_that_went_well_ends_its_log(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    run(lambda write: life.beat(), tmp_path)
    assert ends(tmp_path, rank=3) == [RunEnd("succeeded", None)]
    life.beat()  # its log is closed by now


@pytest.mark.parametrize(("error", "status"), [(UserError("no such\nflag"), 2), (TrainingError("no such flag"), 1)])
def test_an_error_of_the_user_or_the_training_is_one_line_and_a_status(tmp_path, capfd, error, status):
    def program(write):
        raise error

    with pytest.raises(SystemExit) as exit_:
        run(program, tmp_path)
    assert exit_.value.code == status
    assert capfd.readouterr().err == "error: no such flag\n"
    assert ends(tmp_path) == [RunEnd("failed", "no such flag")]


def test_a_bug_is_logged_and_keeps_its_traceback(tmp_path):
    with pytest.raises(ZeroDivisionError):
        run(lambda write: 1 / 0, tmp_path)
    assert ends(tmp_path) == [RunEnd("failed", "ZeroDivisionError: division by zero")]


def test_lengths():
    assert Length(steps=5).steps_left(3, 9.0, 100) == 2
    assert Length(epochs=2).steps_left(150, 9.0, 100) == 50
    assert Length(seconds=10).steps_left(3, 4.0, 100) == 4
    assert Length(seconds=10).steps_left(3, 9.9, 100) == 1
    assert Length(seconds=10).steps_left(3, 10.0, 100) == 0
    assert Length(seconds=10).steps_left(0, 0.0, 100) == 1
    assert Length(seconds=2.5).as_dict() == {"seconds": 2.5} and str(Length(epochs=20)) == "20 epochs"


def test_precision_on_the_cpu():
    cpu = torch.device("cpu")
    assert Precision.choose("auto", True, True, cpu).name == "fp32"
    with Precision.choose("bf16", True, True, cpu).autocast():
        assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).dtype == torch.bfloat16
    with pytest.raises(UserError, match="--precision fp16 needs a GPU"):
        Precision.choose("fp16", True, True, cpu)


@pytest.fixture
def _cudnn_as_it_was():
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.get_float32_matmul_precision()
    yield
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = before[:2]
    torch.set_float32_matmul_precision(before[2])


@pytest.mark.usefixtures("_cudnn_as_it_was")
@pytest.mark.filterwarnings("ignore:.*GradScaler is enabled, but CUDA is not available")
@pytest.mark.parametrize(
    ("name", "dilated", "by_timing"),
    [("fp16", True, True), ("bf16", True, True), ("tf32", True, False), ("fp32", True, False), ("fp32", False, True)],
)
def test_cudnn_does_not_time_dilated_convolutions_in_single_precision(name, dilated, by_timing):
    Precision.choose(name, True, True, torch.device("cuda"), dilated)
    assert torch.backends.cudnn.benchmark is by_timing


def test_one_process_is_not_wrapped():
    model = torch.nn.Linear(2, 2)
    ddp = choose(ALONE, "auto")
    assert ddp.wrap(model) is model and ddp.name == "none"
    with pytest.raises(UserError, match="--ddp apex needs GPUs"):
        choose(ALONE, "apex")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Puts an `apex` package made of the given files in front of all others."""

    def install(files):
        for name, text in files.items():
            path = tmp_path / "site" / "apex" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        monkeypatch.syspath_prepend(tmp_path / "site")

    yield install
    for name in [name for name in sys.modules if name.partition(".")[0] == "apex"]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ({"__init__.py": ""}, "unrelated package"),
        ({"__init__.py": "import pyramid_without_a_tent"}, "cannot be imported"),
        ({"__init__.py": "", "optimizers.py": ""}, "no longer has apex.parallel"),
        ({"__init__.py": "", "parallel.py": ""}, "has no parallel.DistributedDataParallel"),
        ({"__init__.py": "", "parallel.py": "class DistributedDataParallel: pass"}, ""),
    ],
)
def test_only_an_apex_that_has_a_ddp_is_taken(installed, files, reason):
    installed(files)
    found, why_not = find_apex()
    assert reason in why_not
    assert (found is None) == bool(reason)


def test_where_a_rank_runs(monkeypatch):
    monkeypatch.setenv("SCALEOUT_RUN_ID", "manual__1")
    monkeypatch.setenv("SCALEOUT_NODE", "node7")
    place = facts.place(ALONE, "torch")
    assert (place["run_id"], place["node"], place["backend"]) == ("manual__1", "node7", None)
    assert place["affinity"] and place["device_name"] and len(place["boot_id"]) == 36
    assert {"release", "python", "torch", "dali"} <= set(place["versions"])
