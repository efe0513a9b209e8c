import subprocess
import sys
from pathlib import Path

import pytest

from training.common.args import CommonOptions
from training.common.errors import UserError
from training.common.length import Length
from training.ssd.args import Options, learning_rate, length, parse

COMMAND = (
    "python -m torch.distributed.launch --nproc_per_node=8 --nnodes=3 --node_rank=0 main.py --batch-size 32 "
    "--mode training --num-workers 20 --epochs 20 --data /mnt/cityscapes/ssd3T"
)
PAPER = COMMAND.partition("main.py")[2].split()


def paper_options(local_rank):
    return Options(
        data=Path("/mnt/cityscapes/ssd3T"),
        mode="training",
        epochs=20,
        batch_per_gpu=32,
        eval_batch=32,
        num_workers=20,
        learning_rate=2.6e-3,
        momentum=0.9,
        weight_decay=5e-4,
        warmup=0,
        milestones=(43, 54),
        evaluation=(21, 31, 37, 42, 48, 53, 59, 64),
        seed=None,
        backbone="resnet50",
        backbone_path=None,
        checkpoint=None,
        save=None,
        mixed_precision=True,
        benchmark_iterations=20,
        benchmark_warmup=20,
        common=CommonOptions(
            precision="auto",
            allow_tf32=True,
            ddp="auto",
            backend="auto",
            ddp_bucket_mb=None,
            ddp_bucket_view=True,
            ddp_static_graph=False,
            ddp_compress="none",
            cuda=True,
            data_layout=None,
            compile_mode=None,
            cuda_graph=None,
            activation_checkpointing=False,
            loader="dali",
            antialias=True,
            deterministic=False,
            binding=True,
            local_rank=local_rank,
            events=None,
            record_images=False,
            json_summary=None,
            log_interval=20,
            steps=None,
            seconds=None,
            window_steps=None,
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
    assert length(parse(PAPER), 0) == Length(epochs=20)
    assert length(parse([*PAPER, "--steps", "7"]), 0) == Length(steps=7)
    assert length(parse([*PAPER, "--seconds", "2.5"]), 0) == Length(seconds=2.5)


def test_a_resumed_run_makes_the_epochs_that_are_left():
    assert length(parse(PAPER), 15) == Length(epochs=5)
    assert length(parse([*PAPER, "--steps", "7"]), 20) == Length(steps=7)
    with pytest.raises(UserError, match="has 20 epochs behind it and --epochs 20 asks for no more"):
        length(parse(PAPER), 20)


def test_every_flag_of_the_reference_in_long_and_in_short():
    long = (
        "--data x --epochs 2 --batch-size 4 --eval-batch-size 5 --no-cuda --mode benchmark-training --checkpoint c --save s "
        "--learning-rate 0.1 --momentum 0.8 --weight-decay 0 --warmup 300 --multistep 3 4 --evaluation 1 2 --seed 1 "
        "--num-workers 3 --backbone resnet34 --backbone-path b --no-amp --no-allow-tf32 --data-layout channels_first "
        "--benchmark-iterations 6 --benchmark-warmup 7 --log-interval 8 --json-summary j --local_rank 2"
    )
    short = (
        long.replace("--data ", "-d ").replace("--epochs", "-e").replace("--batch-size", "--bs")
        .replace("--eval---bs", "--ebs").replace("--eval-batch-size", "--ebs").replace("--learning-rate", "--lr")
        .replace("--momentum", "-m").replace("--weight-decay", "--wd").replace("--seed", "-s")
    )  # fmt: skip
    options = parse(long.split())
    assert short != long and parse(short.split()) == options
    common = options.common
    assert (options.data, options.epochs, options.batch_per_gpu, options.eval_batch) == (Path("x"), 2, 4, 5)
    assert (options.mode, options.checkpoint, options.save) == ("benchmark-training", Path("c"), Path("s"))
    assert (options.learning_rate, options.momentum, options.weight_decay, options.warmup) == (0.1, 0.8, 0.0, 300)
    assert (options.milestones, options.evaluation, options.seed, options.num_workers) == ((3, 4), (1, 2), 1, 3)
    assert (options.backbone, options.backbone_path, options.mixed_precision) == ("resnet34", Path("b"), False)
    assert (options.benchmark_iterations, options.benchmark_warmup) == (6, 7)
    assert (common.cuda, common.allow_tf32, common.data_layout) == (False, False, "channels_first")
    assert (common.log_interval, common.json_summary, common.local_rank) == (8, Path("j"), 2)


def test_the_flags_of_ours():
    given = (
        "-d x --loader torch --ddp torch --precision bf16 --compile --no-antialias --no-binding --events e "
        "--record-images --backend gloo --window-steps 5 --warmup-steps 0 --synthetic-steps 0"
    )
    common = parse(given.split()).common
    assert (common.loader, common.ddp, common.precision, common.compile_mode) == ("torch", "torch", "bf16", "default")
    assert (common.antialias, common.binding, common.events, common.record_images) == (False, False, Path("e"), True)
    assert parse(["-d", "x", "--compile", "max-autotune"]).common.compile_mode == "max-autotune"
    assert parse(["-d", "x", "--no-cuda-graph"]).common.cuda_graph is False
    plain = parse(["-d", "x", "--no-compile", "--cuda-graph", "--activation-checkpointing"]).common
    assert (plain.compile_mode, plain.cuda_graph, plain.activation_checkpointing) == ("off", True, True)


def test_a_global_batch_is_shared_by_the_ranks(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert parse(["-d", "x", "--global-batch-size", "64"]).batch_per_gpu == 16
    with pytest.raises(UserError, match="66 cannot be shared by 4 ranks; 64 could"):
        parse(["-d", "x", "--global-batch-size", "66"])
    with pytest.raises(UserError, match="contradict each other"):
        parse(["-d", "x", "--global-batch-size", "64", "--bs", "16"])


def test_the_rate_grows_in_the_warm_up_and_falls_at_the_milestones():
    options = parse(["-d", "x", "--lr", "0.032", "--warmup", "8", "--multistep", "2", "3"])
    rates = [learning_rate(options, 320, 4, epoch, step) for epoch in range(4) for step in range(4)]
    assert rates == pytest.approx([0.04 * step for step in range(8)] + [0.032] * 4 + [0.0032] * 4)
    assert learning_rate(parse(PAPER), 8 * 32, 100, 0, 0) == pytest.approx(2.6e-3 * 8)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("--batch-size 4", "--data"),
        ("-d x --mode evaluation", "--mode evaluation needs --checkpoint"),
        ("-d x --mode inference", "invalid choice"),
        ("-d x --backbone vgg16", "invalid choice"),
        ("-d x --record-images", "give --events DIR too"),
        ("-d x --compile fast", "invalid choice"),
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
