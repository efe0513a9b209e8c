"""Inflation that was killed, or whose set was damaged: run again, it ends with the same tree."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from inflation_data import MEAN_MB, TRAIN, command, inflate, refused, same
from test_data_programs import tree

from training.data.inflation.survey import recorded
from training.data.verification.run import drop, verify

FACTOR = 60
SETTINGS = ("--factor", FACTOR, "--mean-mb", MEAN_MB)
SHARDS = len(TRAIN)
FEW = 3
LIMIT_S = 120
MANY_KILLS = 10
MOMENTS = ("start", "plan", "last shard")


@dataclass(frozen=True)
class Whole:
    """What must come of it, not to be changed, and how long a run that nobody disturbs takes from each moment to the next."""

    out: Path
    seconds: dict[str, float]


@pytest.fixture(scope="module")
def whole(base: Path, workload: str, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    out = tmp_path_factory.mktemp("whole") / "out"
    at_s = [time.monotonic()]
    run = begin(command(workload, base, out, *SETTINGS, "--workers", 2))
    for moment in (*MOMENTS[1:], "manifest"):
        wait_for(moment, run, out, None)
        at_s.append(time.monotonic())
    assert run.wait(LIMIT_S) == 0
    return Whole(out, {moment: end - start for moment, (start, end) in zip(MOMENTS, pairwise(at_s), strict=True)})


@pytest.fixture
def out(whole: Whole, tmp_path: Path) -> Path:
    """A copy to damage, which is dated as a copy is."""
    return Path(shutil.copytree(whole.out, tmp_path / "out"))


def begin(start: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        start, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
    )


def plan_inode(out: Path) -> int | None:
    plan = out / "plan.json"
    return plan.stat().st_ino if plan.exists() else None


def wait_for(moment: str, run: subprocess.Popen[bytes], out: Path, old_plan: int | None) -> None:
    """Until the run has written its plan, or all shards are there, too, or the manifest, or it has ended."""

    def is_there() -> bool:
        planned = plan_inode(out) not in (None, old_plan)
        more = {"last shard": len(shards_there(out)) == SHARDS, "manifest": (out / "manifest.json").exists()}
        return planned and more.get(moment, True)

    while moment != "start" and not is_there() and run.poll() is None:
        time.sleep(0.002)


def shards_there(out: Path) -> list[str]:
    return [key for key in recorded(out) if key.removeprefix("train/") in TRAIN]


@dataclass(frozen=True)
class Killed:
    """When a run was killed, and what it left."""

    after: str
    after_s: float
    images: int
    shards: int
    partial: int
    finished: bool

    def row(self) -> str:
        when = f"{self.after_s:6.2f} s after its {self.after}"
        end = "yes" if self.finished else "no"
        return f"{when:32} {self.images:7} {self.shards:7} of {SHARDS} {self.partial:9}   {end}"


def test_killed_at_random_moments_it_ends_with_the_same_tree(
    workload: str,
    base: Path,
    whole: Whole,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    chance, kills = random.Random(pytestconfig.option.kill_seed), pytestconfig.option.kills
    out = tmp_path / "out"
    start = command(workload, base, out, *SETTINGS, "--workers", 2)
    rows: list[Killed] = []
    for number in range(kills):
        if (out / "manifest.json").exists():
            assert same(out, whole.out)
            shutil.rmtree(out)
        after = MOMENTS[(number + 1) % len(MOMENTS)]
        rows.append(killed(start, out, after, chance.uniform(0, whole.seconds[after])))
    assert begin(start).wait(LIMIT_S) == 0
    if kills >= MANY_KILLS:
        with capsys.disabled():
            print(f"\n{workload}: killed               images there  shards there   partial   manifest there")
            print("\n".join(row.row() for row in rows))
            print(f"then run to its end: {'the same tree' if same(out, whole.out) else 'ANOTHER TREE'}")
    assert same(out, whole.out)
    assert any(row.shards < SHARDS for row in rows)


def killed(start: list[str], out: Path, after: str, after_s: float) -> Killed:
    """Kills the process group of a run, workers and all, so long after one of the moments."""
    old_plan = plan_inode(out)
    run = begin(start)
    wait_for(after, run, out, old_plan)
    time.sleep(after_s)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    names = [path.name for path in out.rglob("*")]
    images = sum(name.endswith("_leftImg8bit.png") and "_v" in name for name in names)
    partial = sum(name.startswith(".") and "partial" in name for name in names)
    return Killed(after, after_s, images, len(shards_there(out)), partial, "manifest.json" in names)


def test_interrupted_it_says_what_is_done_and_left(workload: str, base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    start = ["env", "--default-signal=INT", *command(workload, base, out, *SETTINGS, "--workers", 2)]
    run = subprocess.Popen(start, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for("plan", run, out, None)
    os.killpg(run.pid, signal.SIGINT)
    _, told = run.communicate(timeout=LIMIT_S)
    state, error = told.splitlines()
    assert run.returncode == 130 and error.startswith("error: interrupted")
    assert state.startswith(f"{out}: ") and f" of {FACTOR * SHARDS} images are done, " in state and " are left" in state


@pytest.mark.parametrize(
    "damage", ["image lost", "image altered", "record lost", "record cut", "stranger", "labels lost"]
)
def test_only_a_damaged_shard_is_made_anew(damage: str, workload: str, base: Path, whole: Whole, out: Path) -> None:
    name = TRAIN[1]
    images = out / ("train2017" if workload == "ssd" else "leftImg8bit/train")
    image = images / name / f"{name}_v0011_leftImg8bit.png"
    record = out / "shards" / "train" / f"{name}.json"
    (labels,) = [path for path in out.glob("*/train*/*") if path.stem == name and path.is_file() and path != record]
    if damage == "record cut":
        os.truncate(record, 99)
    elif damage == "stranger":
        (image.parent / f"{name}_v9999_leftImg8bit.png").write_bytes(b"of another")
    elif damage == "image altered":
        content = image.read_bytes()
        image.write_bytes(content[:-99] + b"?" + content[-98:])
        assert drop(verify(out, None, 0, 1)) == 1
    else:
        {"image lost": image, "record lost": record, "labels lost": labels}[damage].unlink()
    kept = images / TRAIN[0] / f"{TRAIN[0]}_v0011_leftImg8bit.png"
    dated_ns = kept.stat().st_mtime_ns
    planned = inflate(workload, base, out, *SETTINGS, "--phase", "plan").summary
    assert (planned["left_shards"], planned["left_images"]) == (1, FACTOR)
    assert not (out / "manifest.json").exists()
    inflate(workload, base, out, *SETTINGS)
    assert same(out, whole.out) and kept.stat().st_mtime_ns == dated_ns


@pytest.mark.parametrize("damage", ["manifest", "plan", "labels of the whole", "val"])
def test_what_belongs_to_no_frame_is_made_anew(damage: str, workload: str, base: Path, whole: Whole, out: Path) -> None:
    """And no image is."""
    if damage in ("manifest", "plan"):
        (out / f"{damage}.json").unlink()
    elif damage == "val":
        image = next(iter(out.glob("*/lindau/*") if workload == "ssd" else out.glob("*/val/lindau/*")))
        image.rename(image.with_name(".begun.1.partial.png"))
    else:
        whole_labels = "annotations/instances_train2017.json" if workload == "ssd" else "index/train-files/names.npy"
        (out / whole_labels).unlink()
    dates = {path: path.stat().st_mtime_ns for path in out.rglob(f"{TRAIN[0]}_v*") if path.is_file()}
    again = inflate(workload, base, out, *SETTINGS).summary
    assert again["images"] == FACTOR * SHARDS and again["skipped"] == (damage == "plan")
    assert {path: path.stat().st_mtime_ns for path in dates} == dates
    if damage != "plan":
        assert same(out, whole.out)


def test_files_that_are_not_its_own_are_left_where_they_are(workload: str, base: Path, whole: Whole, out: Path) -> None:
    """What file servers and desktops leave, and notes of a user: the set is whole with them, and is mended around them."""
    image = next(out.rglob(f"{TRAIN[1]}_v0011_leftImg8bit.png"))
    folders = [
        out,
        out / "shards",
        image.parent,
        image.parent.parent,
        next(out.rglob("*lindau*_leftImg8bit.png")).parent,
    ]
    strangers = {folder / "notes.txt": b"mine" for folder in folders}
    strangers |= {folder / "mine" / "more" / "notes.txt": b"mine, too" for folder in folders}
    strangers |= {folder / "@eaDir" / f"{image.name}@SynoEAStream": b"of the file server" for folder in folders}
    strangers |= {folder / f"._{image.name}": b"of the desktop" for folder in folders}
    for path, content in strangers.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    assert inflate(workload, base, out, *SETTINGS).summary["skipped"]
    kinds = verify(out, None, 0, 1).damages.by_kind()
    assert set(kinds) == {"extra"} and kinds["extra"] == 2 * len(folders)
    image.unlink()
    again = inflate(workload, base, out, *SETTINGS)
    assert not again.summary["skipped"] and any("1 shards with 60 images to make" in line for line in again.lines)
    assert {path: path.read_bytes() for path in strangers} == strangers
    for path in strangers:
        path.unlink()
    for folder in folders:
        for name in ("mine/more", "mine", "@eaDir"):
            (folder / name).rmdir()
    there, wanted = tree(out), tree(whole.out)
    assert there.keys() == wanted.keys()
    dated = {path for path in wanted if there[path] != wanted[path]}  # an index has the dates of folders
    assert dated <= {path for path in wanted if path == "manifest.json" or path.endswith(("/meta.json", "/index.json"))}


def test_pictures_of_no_frame_are_told_and_kept(workload: str, base: Path, out: Path) -> None:
    """Segmentation reads what its folders hold."""
    image = next(out.rglob(f"{TRAIN[1]}_v0011_leftImg8bit.png"))
    other = shutil.copytree(image.parent, image.parent.parent / "ulm_000000_000019")
    before = tree(other)
    for _ in range(2):
        sentence = refused(workload, base, out, *SETTINGS)
        assert sentence.startswith(f"{other}: is of no frame of the base set") and "move it away" in sentence
    assert tree(other) == before
    shutil.rmtree(other)
    inflate(workload, base, out, *SETTINGS)


@pytest.mark.parametrize("stranger", ["folder", "file"])
def test_what_blocks_a_place_is_named(stranger: str, workload: str, base: Path, whole: Whole, out: Path) -> None:
    image = next(out.rglob(f"{TRAIN[1]}_v0011_leftImg8bit.png"))
    if stranger == "folder":
        blocked = image
        image.unlink()
        (image / "inside").mkdir(parents=True)
    else:
        blocked = image.parent
        shutil.rmtree(blocked)
        blocked.write_text("mine")
    other = "file" if stranger == "folder" else "folder"
    sentence = refused(workload, base, out, *SETTINGS)
    assert sentence.startswith(f"{blocked}: is a {stranger} where a {other} belongs; move it away; ")
    blocked.rename(out.parent / "away")
    inflate(workload, base, out, *SETTINGS)
    assert same(out, whole.out)


@pytest.mark.parametrize("damage", ["lost", "empty", "altered"])
def test_without_its_plan_a_set_is_mended_by_its_manifest(
    damage: str, workload: str, base: Path, whole: Whole, out: Path
) -> None:
    """A shard that is lost is made as it was, and the plan is there again."""
    plan = out / "plan.json"
    content = plan.read_text()
    plan.unlink()
    if damage != "lost":
        noise = json.loads(content)["noise"]
        plan.write_text("" if damage == "empty" else content.replace(f'"noise": {noise}', '"noise": 1.5'))
        assert plan.read_text() != content
    assert drop(verify(out, None, 0, 1)) == 0
    next(out.rglob(f"{TRAIN[1]}_v0011_leftImg8bit.png")).unlink()
    assert drop(verify(out, None, 0, 1)) == 1
    inflate(workload, base, out, *SETTINGS)
    assert inflate(workload, base, out, *SETTINGS).summary["skipped"]
    assert {**tree(out), "plan.json": ""} == {**tree(whole.out), "plan.json": ""}

    plan.write_text("{")
    assert inflate(workload, base, out, *SETTINGS).summary["skipped"]
    assert json.loads(plan.read_text())["shards"] == []


def test_any_damaged_file_that_belongs_to_no_frame_is_made_anew(
    workload: str, base: Path, whole: Whole, out: Path
) -> None:
    """By the commands that verify.py prints, file by file; the damage is one bit, with which each can still be loaded."""
    files = [path for path in out.rglob("*") if path.is_file() and path.suffix in (".json", ".npy")]
    of_the_whole = [
        path for path in files if not path.name.startswith((*TRAIN, "plan", "manifest")) and path.stat().st_size
    ]
    assert of_the_whole
    for path in of_the_whole:
        content = bytearray(path.read_bytes())
        content[-2] ^= 1
        path.unlink()  # a hard link to the base set's
        path.write_bytes(content)
        assert drop(verify(out, None, 0, 1)) == 1, path
        inflate(workload, base, out, *SETTINGS)
        assert same(out, whole.out), path


def test_finishing_waits_for_all_shards_and_names_the_command(workload: str, base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    few = ("--factor", FEW, "--method", "copy")
    inflate(workload, base, out, *few, "--phase", "plan")
    inflate(workload, base, out, "--phase", "make", "--node", 0, "--nodes", 2)
    sentence = refused(workload, base, out, "--phase", "finish")
    assert "shards are missing, the first " in sentence
    assert "3 of 9 images" in sentence or "6 of 9 images" in sentence
    going_on = f"python training/{workload}/inflate.py --source {base} --out {out} --factor 3 --method copy --format png --seed 0"
    assert sentence.endswith(going_on)
    assert not (out / "manifest.json").exists()
    again = inflate(workload, base, out, "--phase", "make", "--node", 0, "--nodes", 2).summary
    assert again["images"] == 0
    assert inflate(workload, base, out, *few).summary["images"] == 9
