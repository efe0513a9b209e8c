"""Checkpoints: a resumed training ends bit for bit as one that went through; what is no checkpoint is refused."""

import io
import os
import pickle
import random
import resource
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from ranks import launch

from training.common import process_exit
from training.common.checkpoint import check, check_folder, load, restore, save
from training.common.ddp import choose
from training.common.errors import TrainingError, UserError
from training.common.gang import Gang
from training.common.optimizer import sgd
from training.common.precision import Precision
from training.common.step import Training
from training.ssd.boxes import BOXES_PER_CELL
from training.ssd.model import SSD300
from training.ssd.reference_checkpoint import is_reference_ssd, load_reference_ssd
from training.wire.events import CheckpointSaved

CPU = torch.device("cpu")
ALONE = Gang(0, 0, 1, 0, CPU, None)
CLASSES = ["person", "car"]
NAMES = {"program": "ssd", "model_name": "tiny", "seed": 7, "global_batch": 4, "classes": CLASSES}
STEPS_PER_EPOCH = 3


class Run:
    """A tiny training whose every step depends on momentum, batch norm, dropout and all three random generators."""

    def __init__(self, gang, seed=7, fp16=False):
        self.gang = gang
        self.seed_everything(seed + gang.rank)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(6, 6), torch.nn.BatchNorm1d(6), torch.nn.Dropout(0.5), torch.nn.Linear(6, 1)
        )
        model = choose(gang, "torch").wrap(self.model)
        precision = Precision("fp16" if fp16 else "fp32", CPU, torch.amp.GradScaler("cpu", 1024.0, enabled=fp16))
        groups = [{"params": [p for p in self.model.parameters() if (p.dim() > 1) == wide]} for wide in (True, False)]
        optimizer = sgd(groups, 0.05, 0.9, fused=False)
        self.training = Training(model, optimizer, precision, lambda inputs: model(*inputs).square().mean())

    @staticmethod
    def seed_everything(seed):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)

    def epochs(self, count):
        for _ in range(count * STEPS_PER_EPOCH):
            inputs = torch.randn(8, 6) * random.gauss(1, 0.1) + float(np.random.normal())
            self.training.step((inputs,))

    def save(self, folder, epoch):
        step = epoch * STEPS_PER_EPOCH
        return save(folder, self.training, self.model, self.gang, epoch=epoch, step=step, **NAMES)

    def restore(self, checkpoint):
        restore(checkpoint, self.training, self.model, self.gang)
        return self

    def everything(self):
        momentum = [state["momentum_buffer"] for state in self.training.optimizer.state.values()]
        drawn = [torch.rand(1), torch.tensor([random.random(), np.random.random()])]
        return [tensor.clone() for tensor in [*self.model.state_dict().values(), *momentum, *drawn]]


def same(first, second):
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def drive(part, folder):
    """What each of two ranks does, in two launches: train through and save half-way; then resume."""
    gang = Gang.join(int(os.environ["LOCAL_RANK"]), cuda=False, backend="gloo")
    if part == "through":
        check_folder(folder / "saved", gang, 0)
        run = Run(gang)
        run.epochs(2)
        saved = run.save(folder / "saved", epoch=2)
        assert saved.bytes == (folder / "saved" / "epoch_2.pt").stat().st_size
        run.epochs(2)
        torch.save(run.everything(), folder / f"through{gang.rank}.pt")
    else:
        run = Run(gang, seed=99).restore(load(folder / "saved"))
        run.epochs(2)
        ended = run.everything()
        assert same(ended, torch.load(folder / f"through{gang.rank}.pt"))
        torch.save(ended, folder / f"resumed{gang.rank}.pt")
        forbid_large_files(gang.rank == 0)
        said = [failure_of(lambda: run.save(folder / "saved", epoch=4))]
        blocked = folder / "file" / "saved"
        said += [failure_of(lambda: check_folder(blocked, gang, 0)), failure_of(lambda: run.save(blocked, epoch=4))]
        (folder / f"said{gang.rank}").write_text("\n".join(said))
    gang.leave()


def failure_of(function):
    try:
        function()
    except TrainingError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def forbid_large_files(really):
    if really:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """The folder of a training of two ranks that went through and was then resumed from its middle."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "file").write_text("not a folder")
    launch(__file__, "through", folder)
    launch(__file__, "resume", folder)
    return folder


@pytest.fixture
def saved(tmp_path):
    """A checkpoint after two epochs of one process."""
    run = Run(ALONE)
    run.epochs(2)
    return Path(run.save(tmp_path / "made" / "here", epoch=2).path)


def test_one_process_resumes_bit_for_bit(tmp_path):
    run = Run(ALONE)
    run.epochs(2)
    saved = run.save(tmp_path, epoch=2)
    run.epochs(2)
    through = run.everything()
    resumed = Run(ALONE, seed=99).restore(load(tmp_path))
    resumed.epochs(2)
    assert same(through, resumed.everything())
    path = tmp_path / "epoch_2.pt"
    assert saved == CheckpointSaved(2, str(path), path.stat().st_size, saved.seconds) and saved.seconds > 0


def test_two_ranks_resume_bit_for_bit(two_ranks):
    ended = [torch.load(two_ranks / f"resumed{rank}.pt") for rank in range(2)]
    for rank in range(2):
        assert same(ended[rank], torch.load(two_ranks / f"through{rank}.pt"))
    weight, running_mean = 0, 4
    assert torch.equal(ended[0][weight], ended[1][weight])
    assert not torch.equal(ended[0][running_mean], ended[1][running_mean])


def test_every_rank_is_told_that_a_checkpoint_cannot_be_written(two_ranks):
    said = [(two_ranks / f"said{rank}").read_text().splitlines() for rank in range(2)]
    assert said[0] == said[1]
    full, early, late = said[0]
    saved = two_ranks / "saved"
    assert full == (
        f"TrainingError: the checkpoint {saved}/epoch_4.pt cannot be written: File too large; "
        "older checkpoints are as they were"
    )
    assert early.startswith("UserError: no checkpoint can be written to ") and "Not a directory" in early
    assert late.startswith("TrainingError: ") and "Not a directory" in late
    assert [path.name for path in saved.iterdir()] == ["epoch_2.pt"]


def test_saving_does_not_disturb_the_training(tmp_path):
    plain, saving = Run(ALONE), Run(ALONE)
    for run in (plain, saving):
        run.seed_everything(1)
        for epoch in range(1, 3):
            run.epochs(1)
            if run is saving:
                run.save(tmp_path, epoch)
        if run is plain:
            expected = run.everything()
    assert same(expected, saving.everything())


def test_a_gang_of_another_size_goes_on_with_seeds_of_its_own(two_ranks):
    checkpoint = load(two_ranks / "saved")
    assert (checkpoint.world_size, len(checkpoint.random), len(checkpoint.buffers)) == (2, 2, 2)
    first, again = (Run(ALONE, seed).restore(checkpoint).everything() for seed in (1, 2))
    assert same(first, again)
    fourth_of_eight = Gang(3, 3, 8, 0, CPU, None)
    other = Run(ALONE)
    restore(checkpoint, other.training, other.model, fourth_of_eight)
    ended = other.everything()
    assert same(ended[:-2], first[:-2]) and not same(ended[-2:], first[-2:])


def test_the_loss_scale_and_the_momentum_come_back_and_the_options_are_the_new_runs(tmp_path):
    run = Run(ALONE, fp16=True)
    run.epochs(1)
    run.training.precision.scaler.update(2048.0)
    run.training.set_learning_rate(0.5)
    run.save(tmp_path, epoch=1)
    resumed = Run(ALONE, seed=3, fp16=True).restore(load(tmp_path))
    assert resumed.training.precision.scaler.get_scale() == 2048.0
    assert [group["lr"] for group in resumed.training.optimizer.param_groups] == [0.05, 0.05]
    expected = resumed.everything()
    in_full = Run(ALONE, seed=4).restore(load(tmp_path))
    assert same(in_full.everything(), expected)
    in_full.save(tmp_path, epoch=2)
    assert Run(ALONE, fp16=True).restore(load(tmp_path)).training.precision.scaler.get_scale() == 1024.0


def test_a_checkpoint_says_what_it_is_of(saved):
    checkpoint = load(saved)
    assert (checkpoint.program, checkpoint.model_name, checkpoint.classes) == ("ssd", "tiny", CLASSES)
    assert (checkpoint.epoch, checkpoint.step, checkpoint.seed) == (2, 6, 7)
    assert (checkpoint.global_batch, checkpoint.world_size, checkpoint.path) == (4, 1, saved)
    assert next(iter(checkpoint.model)) == "0.weight"
    check(checkpoint, "ssd", "tiny", CLASSES)


def test_a_folder_means_its_newest_checkpoint(saved):
    for name in ("epoch_10.pt", "epoch_9.pt"):
        (saved.parent / name).write_bytes(saved.read_bytes())
    for name in (".epoch_11.pt.partial", "epoch_12.pt.old", "epoch_x.pt"):
        (saved.parent / name).write_bytes(b"cut off")
    assert load(saved.parent).path == saved.parent / "epoch_10.pt"


def test_a_killed_writers_partial_is_in_nobodys_way(tmp_path):
    (tmp_path / ".epoch_1.pt.partial").write_bytes(b"cut off")
    with pytest.raises(UserError, match=r"holds no checkpoint \(epoch_<n>.pt\)"):
        load(tmp_path)
    Run(ALONE).save(tmp_path, epoch=1)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch_1.pt"]


def test_a_checkpoint_of_the_same_epoch_is_replaced_whole(saved):
    before = load(saved)
    run = Run(ALONE, seed=5)
    run.save(saved.parent, epoch=2)
    assert not torch.equal(load(saved).model["0.weight"], before.model["0.weight"])


def test_the_folder_is_made_at_start_up(tmp_path):
    check_folder(tmp_path / "a" / "b", ALONE, 0)
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("segmentation", "tiny", CLASSES), "is a checkpoint of ssd, not of segmentation"),
        (("ssd", "large", CLASSES), "is a checkpoint of the model tiny, not of large"),
        (("ssd", "tiny", ["car"]), r"was trained on 2 classes \(person, car\), the data has 1 classes \(car\)"),
        (("ssd", "tiny", ["car", "person"]), r"was trained on 2 classes \(person, car\), the data has 2 classes"),
    ],
)
def test_another_trainings_checkpoint_is_refused(saved, asked, message):
    with pytest.raises(UserError, match=message):
        check(load(saved), *asked)


def test_a_model_that_has_changed_since_is_refused(saved):
    run = Run(ALONE)
    run.model[3] = torch.nn.Linear(6, 2)
    with pytest.raises(UserError, match=r"does not fit the tiny of this release: .*3\.weight"):
        run.restore(load(saved))


class Attack:
    def __reduce__(self):
        return os.mkdir, ("attacked",)


def saved_bytes(document):
    out = io.BytesIO()
    torch.save(document, out)
    return out.getvalue()


def jpeg():
    out = io.BytesIO()
    Image.new("RGB", (9, 9)).save(out, "JPEG")
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty; load an older one"),
        (jpeg(), "is not a checkpoint"),
        (b"hello\n", "is not a checkpoint"),
        (bytes(1000), "is not a checkpoint"),
        (b"PK\x03\x04", "is truncated or damaged"),
        (pickle.dumps(Attack()), "holds more than weights and numbers, which is never loaded"),
        (saved_bytes({"model": Attack()}), "holds more than weights and numbers, which is never loaded"),
        (saved_bytes([1, 2]), "it holds a list"),
        (saved_bytes({"epoch": 1}), "is not a checkpoint of this program"),
        (saved_bytes({"format": "scaleout-checkpoint", "version": 9}), "of version 9 and this program reads 1"),
        (saved_bytes({"format": "scaleout-checkpoint", "version": 1}), "lacks the key 'program'.*damaged"),
    ],
)
def test_what_is_no_checkpoint_is_refused_in_a_sentence(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "epoch_1.pt"
    path.write_bytes(content)
    for given in (path, tmp_path):
        with pytest.raises(UserError, match=message) as refused:
            load(given)
        assert "\n" not in str(refused.value) and str(path) in str(refused.value)
    assert not (tmp_path / "attacked").exists()


def test_a_damaged_checkpoint_is_refused_wherever_the_damage_is(saved):
    whole = saved.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:-1], whole[1000:]):
        saved.write_bytes(damaged)
        with pytest.raises(UserError):
            load(saved)
    weight = load_bytes(saved, whole).model["0.weight"].numpy().tobytes()
    at = whole.index(weight) + 20
    saved.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with pytest.raises(UserError, match="is truncated or damaged"):
        load(saved)


def load_bytes(path, content):
    path.write_bytes(content)
    return load(path)


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.pt cannot be read: No such file or directory"):
        load(tmp_path / "nowhere.pt")


class Reference(torch.nn.Module):
    """The reference program's SSD300 by name, order and shape (Detection/SSD, ssd/model.py): no forward."""

    def __init__(self, classes, backbone):
        super().__init__()
        ours = SSD300(classes, backbone)
        self.feature_extractor = torch.nn.Module()
        self.feature_extractor.feature_extractor = torch.nn.Sequential(*ours.backbone)
        self.additional_blocks = ours.blocks
        heads = [
            (torch.nn.Conv2d(c, n * 4, 3, padding=1), torch.nn.Conv2d(c, n * classes, 3, padding=1))
            for c, n in zip([loc.in_channels for loc in ours.locations], BOXES_PER_CELL, strict=True)
        ]
        self.loc = torch.nn.ModuleList(loc for loc, _ in heads)
        self.conf = torch.nn.ModuleList(conf for _, conf in heads)


def reference_file(path, classes=81, backbone="resnet50", prefix=""):
    """Saved as the reference program saves it, with its optimiser and its schedule."""
    model = Reference(classes, backbone)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [43, 54])
    weights = {prefix + name: tensor for name, tensor in model.state_dict().items()}
    torch.save(
        {
            "epoch": 1, "iteration": 10, "optimizer": optimizer.state_dict(), "scheduler": schedule.state_dict(),
            "label_map": {0: "background", 1: "person"}, "model": weights,
        },
        path,
    )  # fmt: skip
    return list(model.state_dict().values())


@pytest.mark.parametrize(("backbone", "prefix"), [("resnet50", ""), ("resnet50", "module."), ("resnet18", "")])
def test_the_reference_programs_weights_get_our_names(tmp_path, backbone, prefix):
    path = tmp_path / "epoch_0.pt"
    theirs = reference_file(path, backbone=backbone, prefix=prefix)
    assert is_reference_ssd(path)
    found = load_reference_ssd(path, 81, backbone)
    model = SSD300(81, backbone)
    model.load_state_dict(found)
    assert same(list(model.state_dict().values()), theirs)
    with pytest.raises(UserError, match="is not a checkpoint of this program"):
        load(path)


def test_reference_weights_for_another_model_are_refused(tmp_path):
    path = tmp_path / "epoch_0.pt"
    reference_file(path)
    with pytest.raises(UserError, match="scores 81 classes with the background and the data has 9"):
        load_reference_ssd(path, 9)
    for backbone in ("resnet18", "resnet101"):
        with pytest.raises(UserError, match=f"is not of an SSD300 with a {backbone}.*weights differ by name"):
            load_reference_ssd(path, 81, backbone)


def test_a_checkpoint_of_ours_is_not_the_reference_programs(saved):
    assert not is_reference_ssd(saved)
    with pytest.raises(UserError, match="is not a checkpoint of the reference SSD program"):
        load_reference_ssd(saved, 81)


def test_a_folder_with_later_checkpoints_of_another_training_is_refused(tmp_path):
    (tmp_path / "epoch_2.pt").touch()
    check_folder(tmp_path, ALONE, 2)
    (tmp_path / "epoch_5.pt").touch()
    with pytest.raises(UserError, match=r"holds epoch_5\.pt of another training already"):
        check_folder(tmp_path, ALONE, 2)


if __name__ == "__main__":
    process_exit.run(lambda: drive(sys.argv[1], Path(sys.argv[2])))
