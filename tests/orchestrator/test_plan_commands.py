"""The command of every node, as one would type it there. Golden files; rewrite them with SCALEOUT_GOLDEN=write."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trials import CHECKOUT, cluster, environment, sweep_of

from scaleout import settings
from scaleout.config import files
from scaleout.local.ports import free_port
from scaleout.plan.commands import LAUNCHER_ENVIRONMENT, Rendezvous, node_command, shown
from scaleout.plan.dataset import inflate_flags, phase_flags

GOLDEN = Path(__file__).parent / "golden"
# As the paper prints them.
PUBLISHED = {
    "ssd": """python -m torch.distributed.launch --nproc_per_node=8 --nnodes=3 --node_rank=0 main.py --batch-size 32
        --mode training --num-workers 20 --epochs 20 --data /mnt/cityscapes/ssd3T""",
    "segmentation": """python -m torch.distributed.launch --nproc_per_node=8 --nnodes=4 --node_rank=0 train.py --bs_trn 8
        --apex --fp16 --crop_size "800,800" --num_workers 10 --max_epoch 20 --arch deepv3.DeepV3PlusW38""",
}
ADDED = {
    "--master_addr", "--master_port", "--log-dir", "--tee",
    "--seed", "--warmup-steps", "--synthetic-steps", "--events",
}  # fmt: skip
NO_CHECKPOINTS = {"ssd": set(), "segmentation": {"--no-result_dir"}}  # SSD writes none unless told to


def commands(workload: str, conf: dict[str, Any], **changes: Any) -> list[list[str]]:
    """Of all nodes of the largest trial."""
    conf = {"workloads": [workload], "preset": "paper", "budget_h": 10**6, **conf}
    sweep = sweep_of(conf, on=cluster(4, **changes))
    trial = sweep.trials[-1]
    return [
        node_command(
            trial=trial,
            workload=sweep.workloads[workload],
            node_rank=rank,
            rendezvous=Rendezvous("10.0.0.1", 29500),
            python="/opt/train/bin/python",
            data=sweep.prepared_path(workload),
            events=f"/home/bench/runs/r/{trial.key.folder(1)}/{name}",
        )
        for rank, name in enumerate(trial.node_names)
    ]


@pytest.mark.parametrize(
    ("golden", "workload", "conf"),
    [
        ("ssd-n1-epochs", "ssd", {"nodes": [1]}),
        ("ssd-n3-steps", "ssd", {"nodes": [3], "length": {"steps": 200}, "batch_per_gpu": 32, "seed": 7}),
        ("segmentation-n4-epochs", "segmentation", {"nodes": [4]}),
        (
            "segmentation-n2-seconds",
            "segmentation",
            {"nodes": [2], "length": {"seconds": 300}, "launcher": "torch.distributed.launch"},
        ),
    ],
)
def test_the_commands_are_those_of_the_golden_file(golden: str, workload: str, conf: dict[str, Any]) -> None:
    text = "".join(json.dumps(command, indent=0) + "\n" for command in commands(workload, conf))
    path = GOLDEN / f"{golden}.txt"
    if os.environ.get("SCALEOUT_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


def test_every_golden_file_is_compared() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {
        "ssd-n1-epochs",
        "ssd-n3-steps",
        "segmentation-n4-epochs",
        "segmentation-n2-seconds",
    }


def by_flag(command: list[str], program: str) -> dict[str, list[str]]:
    """The values of each flag, in whatever order the flags stand; `--flag=value` and `--flag value` are alike."""
    values: dict[str, list[str]] = {}
    words = [part for word in command for part in (word.split("=") if word.startswith("--") else [word])]
    assert words.count(program) == 1
    for word in words:
        if word.startswith("--") or word == program:
            values[word] = []
        elif values:
            values[list(values)[-1]].append(word)
    return values


@pytest.mark.parametrize("launcher", ["torchrun", "torch.distributed.launch"])
@pytest.mark.parametrize(("workload", "conf"), [("ssd", {"nodes": [3], "batch_per_gpu": 32}), ("segmentation", {})])
def test_the_papers_command_is_there_word_for_word(workload: str, conf: dict[str, Any], launcher: str) -> None:
    first = commands(workload, {**conf, "launcher": launcher})[0]
    published = shlex.split(PUBLISHED[workload])
    modules = {"torchrun": "torch.distributed.run", "torch.distributed.launch": published[2]}
    assert first[1:3] == ["-m", modules[launcher]]
    program = published[6]
    ours, theirs = by_flag(first, program), by_flag(published, program)
    data = {"ssd": "--data", "segmentation": "--set_cityscapes_root"}[workload]
    theirs.pop(data, None)  # where the data lies is each cluster's own
    assert set(ours) - set(theirs) == ADDED | NO_CHECKPOINTS[workload] | {data}
    assert {flag: ours[flag] for flag in theirs} == theirs


def test_on_cpus_a_model_and_a_crop_that_fit_them_take_the_place_of_the_papers() -> None:
    cpu, cuda = (
        by_flag(commands("segmentation", {"nodes": [1]}, device=device)[0], "train.py") for device in ("cpu", "cuda")
    )
    assert {flag: values for flag, values in cpu.items() if cuda[flag] != values} == {
        "--crop_size": ["128,128"],
        "--arch": ["deepv3.DeepV3PlusR50"],
    }
    assert commands("ssd", {"nodes": [1]}, device="cpu") == commands("ssd", {"nodes": [1]}, device="cuda")


def test_nodes_differ_in_their_rank_and_in_where_they_log() -> None:
    first, second = commands("ssd", {"nodes": [2]})
    changed = {(a, b) for a, b in zip(first, second, strict=True) if a != b}
    assert changed == {
        ("--node_rank=0", "--node_rank=1"),
        (
            "--log-dir=/home/bench/runs/r/ssd-n2-cold-r1-t1/node1/logs",
            "--log-dir=/home/bench/runs/r/ssd-n2-cold-r1-t1/node2/logs",
        ),
        ("/home/bench/runs/r/ssd-n2-cold-r1-t1/node1", "/home/bench/runs/r/ssd-n2-cold-r1-t1/node2"),
    }


@pytest.mark.parametrize("length", [{"steps": 200}, {"seconds": 0.5}, {"seconds": 1209600.25}, {"epochs": 3}])
def test_the_length_on_the_command_line_is_the_one_that_was_asked_for(length: dict[str, float]) -> None:
    ((name, value),) = length.items()
    (command,) = commands("ssd", {"nodes": [1], "window_steps": 10, "length": length})
    lengths = {
        flag: command[command.index(flag) + 1] for flag in ("--steps", "--seconds", "--epochs") if flag in command
    }
    assert {flag: float(text) for flag, text in lengths.items()} == {f"--{name}": value}


def test_a_program_chooses_its_windows_unless_it_is_told() -> None:
    (left,), (told,) = commands("ssd", {"nodes": [1]}), commands("ssd", {"nodes": [1], "window_steps": 10})
    assert "--window-steps" not in left and told[told.index("--window-steps") + 1] == "10"


RANK = """
import os, sys
rank = os.environ["RANK"]
os.write(1, b"rank %s: \\xff\\xfe\\r10%%\\n" % rank.encode())
print("says " + rank)
print("complains " + rank, file=sys.stderr)
"""


@pytest.mark.parametrize("launcher", ["torchrun", "torch.distributed.launch"])
def test_what_each_rank_says_is_in_files_of_its_own_and_in_the_nodes_log_with_its_number(
    launcher: str, tmp_path: Path
) -> None:
    conf = {"nodes": [1], "processes_per_node": 2, "launcher": launcher, "length": {"steps": 200}}
    (command,) = commands("ssd", conf, device="cpu")
    own = {"/opt/train/bin/python": str(settings.node_python()), "--master_addr=10.0.0.1": "--master_addr=127.0.0.1"}
    events = "/home/bench/runs/r/ssd-n1-cold-r1-t1/node1"
    command = [own.get(word, word).replace(events, str(tmp_path / "run")) for word in command]
    (tmp_path / "main.py").write_text(RANK)
    port = free_port()
    command = [word.replace("--master_port=29500", f"--master_port={port}") for word in command]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(**LAUNCHER_ENVIRONMENT), capture_output=True, text=True, check=True
    )
    for rank in (0, 1):
        (out,) = (tmp_path / "run" / "logs").glob(f"*/attempt_0/{rank}/stdout.log")
        assert out.read_bytes() == b"rank %d: \xff\xfe\r10%%\nsays %d\n" % (rank, rank)
        assert out.with_name("stderr.log").read_text() == f"complains {rank}\n"
        assert f"[rank {rank}] says {rank}\n" in done.stdout
        assert f"[rank {rank}] complains {rank}\n" in done.stderr


HOSTILE = ["plain", "two words", "it's", '"quoted"', "$HOME", "`id`", "a;b", "*", "", "new\nline", "ü–é", "\\"]


def test_the_command_that_is_shown_does_the_same_when_pasted_into_a_shell(tmp_path: Path) -> None:
    cwd = tmp_path / "it's a $folder"
    cwd.mkdir()
    program = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), os.environ['A'], os.environ['B']]))"
    line = shown([sys.executable, "-c", program, *HOSTILE], str(cwd), {"B": "b; $PATH", "A": "a 'a'"})
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [HOSTILE, str(cwd), "a 'a'", "b; $PATH"]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
@pytest.mark.parametrize(("workload", "name", "batch"), [("ssd", "main.py", 16), ("segmentation", "train.py", 8)])
def test_the_shipped_program_takes_the_flags_that_a_sweep_gives_it(
    workload: str, name: str, batch: int, device: str
) -> None:
    (command,) = commands(workload, {"nodes": [1], "length": {"steps": 200}}, device=device)
    arguments = command[command.index(name) + 1 :]
    program = (
        f"import sys; from training.{workload}.args import parse; o = parse(sys.argv[1:]); "
        "print(o.batch_per_gpu, o.common.steps)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout == f"{batch} 200\n"


@pytest.mark.parametrize("workload", ["ssd", "segmentation"])
def test_the_programs_of_a_workload_are_shipped(workload: str) -> None:
    found = files.load_workload(workload)
    assert found.inflation
    programs = (found.program, found.prepare, found.inflation.program)
    assert [(CHECKOUT / "training" / program).is_file() for program in programs] == [True, True, True]


def test_the_flags_that_make_a_data_set_say_nothing_that_its_kind_does_not_take() -> None:
    inflation = files.load_workload("ssd").inflation
    assert inflation
    asked = [*inflate_flags(inflation, 3, "/mnt/base", "/mnt/out"), *phase_flags("make", 1, 4)]
    assert " ".join(asked) == (
        "--source /mnt/base --out /mnt/out --factor 3 --method augment --format png --mean-mb 2.88 --seed 0 "
        "--phase make --node 1 --nodes 4"
    )
    for other in ({"method": "copy"}, {"format": "jpeg"}):
        assert "--mean-mb" not in inflate_flags(inflation.model_copy(update=other), 3, "/mnt/base", "/mnt/out")
    assert phase_flags("plan") == ["--phase", "plan"]
