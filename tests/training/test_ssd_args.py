import subprocess
import sys
from pathlib import Path

import pytest

from training.common.args import MeasurementOptions
from training.common.errors import UserError
from training.common.length import Length
from training.ssd.args import Options, parse

COMMAND = (
    "python -m torch.distributed.launch --nproc_per_node=8 --nnodes=3 --node_rank=0 main.py --batch-size 32 "
    "--mode training --num-workers 20 --epochs 20 --data /mnt/cityscapes/ssd3T"
)
PAPER = COMMAND.partition("main.py")[2].split()


def paper_options(local_rank):
    return Options(
        data=Path("/mnt/cityscapes/ssd3T"),
        epochs=20,
        batch_per_gpu=32,
        num_workers=20,
        learning_rate=2.6e-3,
        momentum=0.9,
        weight_decay=5e-4,
        milestones=(43, 54),
        seed=None,
        backbone_path=None,
        mixed_precision=True,
        loader="dali",
        measurement=MeasurementOptions(
            precision="auto",
            ddp="auto",
            backend="auto",
            cuda=True,
            local_rank=local_rank,
            events=None,
            steps=None,
            seconds=None,
            window_steps=50,
            warmup_steps=3,
            synthetic_steps=5,
        ),
    )


@pytest.mark.parametrize("rank", [["--local-rank=3"], ["--local_rank=3"], ["--local-rank", "3"]])
def test_the_papers_command_as_a_launcher_passes_it(rank):
    assert parse([*rank, *PAPER]) == paper_options(3)


def test_without_a_flag_the_local_rank_is_the_environments(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "5")
    assert parse(PAPER) == paper_options(5)


def test_steps_or_seconds_overrule_the_epochs_of_the_papers_command():
    assert parse(PAPER).length == Length(epochs=20)
    assert parse([*PAPER, "--steps", "7"]).length == Length(steps=7)
    assert parse([*PAPER, "--seconds", "2.5"]).length == Length(seconds=2.5)


def test_short_names():
    options = parse(
        [
            "-d",
            "x",
            "-e",
            "2",
            "--bs",
            "4",
            "--lr",
            "0.1",
            "-m",
            "0.8",
            "--wd",
            "0",
            "-s",
            "1",
            "--no-amp",
            "--multistep",
            "3",
        ]
    )
    assert (options.epochs, options.batch_per_gpu, options.learning_rate) == (2, 4, 0.1)
    assert (options.momentum, options.weight_decay, options.seed) == (0.8, 0.0, 1)
    assert (options.mixed_precision, options.milestones) == (False, (3,))


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("--batch-size 4", "--data"),
        ("-d x --mode evaluation", "--mode evaluation is not implemented"),
        ("-d x --steps 1 --seconds 2", "not allowed with"),
        ("-d x --steps 0", "below 1"),
        ("-d x --seconds nan", "not above 0"),
        ("-d x --bs 1", "at least 2"),
        ("-d x --precision fp32 --amp", "--amp contradicts --precision fp32"),
        ("-d x --precision fp16 --no-amp", "--no-amp contradicts"),
        ("-d x --num-worker 3", "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_sentence(argv, sentence):
    with pytest.raises(UserError, match=sentence):
        parse(argv.split())


def test_the_parser_does_not_load_torch():
    code = "import sys, training.ssd.args; assert not {'torch', 'numpy', 'nvidia'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
