"""The command line of the segmentation program."""

import subprocess
import sys
from pathlib import Path

import pytest

from training.common.errors import UserError
from training.common.length import Length
from training.segmentation.args import length, parse, root

PAPER = [
    "--bs_trn", "8", "--apex", "--fp16", "--crop_size", "800,800", "--num_workers", "10", "--max_epoch", "20",
    "--arch", "deepv3.DeepV3PlusW38",
]  # fmt: skip


@pytest.mark.parametrize("rank", [["--local-rank=3"], ["--local_rank=3"], ["--local_rank", "3"]])
def test_the_papers_command_as_a_launcher_passes_it(rank, monkeypatch):
    monkeypatch.setenv("CITYSCAPES_DATASET", "/mnt/cityscapes")
    options = parse([*rank, *PAPER])
    assert (options.batch_per_gpu, options.crop, options.num_workers, options.epochs) == (8, (800, 800), 10, 20)
    assert (options.arch, options.mixed_precision, options.common.ddp) == ("deepv3.DeepV3PlusW38", True, "auto")
    assert (options.common.local_rank, root(options)) == (3, Path("/mnt/cityscapes"))
    assert length(options, 0) == Length(epochs=20)


def test_defaults_are_the_references():
    options = parse([])
    assert (options.learning_rate, options.lr_schedule, options.poly_exp) == (0.002, "poly", 1.0)
    assert (options.poly_step, options.rlx_off_epoch, options.rescale, options.repoly) == (110, -1, 1.0, 1.5)
    assert (options.momentum, options.weight_decay, options.optimizer) == (0.9, 1e-4, "sgd")
    assert (options.epochs, options.max_cu_epoch, options.batch_per_gpu, options.eval_batch) == (180, 150, 2, 1)
    assert (options.uniform_share, options.uniform_tile, options.crop) == (0.5, 1024, (896, 896))
    assert (options.scale_min, options.scale_max, options.color_aug, options.num_workers) == (0.5, 2.0, 0.25, 4)
    assert (options.val_freq, options.cv, options.syncbn, options.mixed_precision) == (1, 0, False, False)
    assert (options.snapshot, options.resume, options.common.ddp) == (None, None, "torch")
    assert options.result_dir == Path("./logs").absolute() and not options.test_mode
    assert not options.common.deterministic


def test_every_flag_of_the_reference():
    given = (
        "--lr 0.1 --arch deepv3.DeepV3PlusR50 --dataset cityscapes --cv 3 --num_workers 2 --class_uniform_pct 0 "
        "--class_uniform_tile 512 --max_epoch 3 --max_cu_epoch 2 --bs_trn 5 --bs_val 4 --crop_size 64,96 --scale_min 0.7 "
        "--scale_max 1.5 --color_aug 0 --lr_schedule poly2 --poly_exp 2 --poly_step 9 --weight_decay 0 --momentum 0.8 "
        "--syncbn --optimizer adam --resume r --result_dir d --val_freq 2 --test_mode --set_cityscapes_root x "
        "--deterministic --local_rank 1"
    )
    options = parse(given.split())
    assert (options.learning_rate, options.arch, options.cv, options.num_workers) == (0.1, "deepv3.DeepV3PlusR50", 3, 2)
    assert (options.uniform_share, options.uniform_tile, options.epochs, options.max_cu_epoch) == (0, 512, 3, 2)
    assert (options.batch_per_gpu, options.eval_batch, options.crop) == (5, 4, (64, 96))
    assert (options.scale_min, options.scale_max, options.color_aug) == (0.7, 1.5, 0)
    assert (options.poly_exp, options.poly_step, options.weight_decay, options.momentum) == (2, 9, 0, 0.8)
    assert (options.syncbn, options.optimizer, options.lr_schedule) == (True, "adam", "poly2")
    assert (options.resume, options.result_dir) == (Path("r"), Path("d").absolute())
    assert (options.val_freq, options.root, options.common.local_rank) == (2, Path("x"), 1)
    assert options.common.deterministic and length(options, 0) == Length(steps=2)
    assert parse(["--snapshot", "s"]).snapshot == Path("s")
    again = parse(["--lr_schedule", "scl-poly", "--rlx_off_epoch", "100", "--rescale", "0.5", "--repoly", "2"])
    assert (again.lr_schedule, again.rlx_off_epoch, again.rescale, again.repoly) == ("scl-poly", 100, 0.5, 2)


@pytest.mark.parametrize(
    ("command", "folder"),
    [
        ("", "logs"),
        ("--result_dir d", "d"),
        ("--no-result_dir", None),
        ("--test_mode", None),
        ("--test_mode --result_dir /d", "/d"),
        ("--steps 5", "logs"),
    ],
)
def test_where_checkpoints_go(command, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert parse(command.split()).result_dir == (tmp_path / folder if folder else None)


def test_a_global_batch_is_shared_by_the_ranks(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert parse(["--global-batch-size", "32"]).batch_per_gpu == 8
    with pytest.raises(UserError, match="33 cannot be shared by 4 ranks"):
        parse(["--global-batch-size", "33"])


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("--crop_size 800x800", "'800x800' is neither a side in pixels nor height,width"),
        ("--crop_size 1,2,3", "neither a side"),
        ("--class_uniform_pct 1.5", "not from 0 to 1"),
        ("--apex --ddp torch", "--apex contradicts --ddp torch"),
        ("--fp16 --precision bf16", "--fp16 contradicts --precision bf16"),
        ("--scale_min 3", "--scale_min 3 is above --scale_max 2"),
        ("--snapshot a --resume b", "contradict each other"),
        ("--mode evaluation", "--mode evaluation needs --snapshot"),
        ("--dataset mapillary", "invalid choice"),
        ("--result_dir d --no-result_dir", "--no-result_dir: not allowed with argument --result_dir"),
        ("--lr_schedule cosine", "--lr_schedule: invalid choice: 'cosine'.*'poly', 'poly2', 'scl-poly'"),
        ("--lr_schedule scl-poly", "scl-poly begins anew at --rlx_off_epoch, which is -1; give one from 0 to 179"),
        ("--lr_schedule scl-poly --rlx_off_epoch 20 --max_epoch 20", "which is 20; give one from 0 to 19"),
        ("--poly_exp -1", "-1 is below 0"),
        ("--repoly nan", "nan is below 0"),
        ("--rescale 0", "0 is not above 0"),
        ("--momentum -0.9", "-0.9 is below 0"),
        ("--optimizer lamb", "invalid choice"),
        ("--global-batch-size 4 --bs_trn 2", "contradict each other"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_sentence(argv, sentence):
    with pytest.raises(UserError, match=sentence):
        parse(argv.split())


def test_without_data_one_is_told_how_to_name_it(monkeypatch):
    monkeypatch.delenv("CITYSCAPES_DATASET", raising=False)
    with pytest.raises(UserError, match=r"give --set_cityscapes_root.*or set CITYSCAPES_DATASET"):
        root(parse(PAPER))


def test_the_parser_does_not_load_torch():
    code = "import sys, training.segmentation.args; assert not {'torch', 'numpy', 'nvidia'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
