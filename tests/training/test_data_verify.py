"""verify.py finds each kind of damage, calls it by its name, and is silent about sets that are sound."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from damages import SETS, TRAINING, Case, cases, flip, make_set, pictures, records, removed, run, said_of, written
from damages import write_cityscapes as write_source
from mounting import MOUNTING, need_mounting


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A sound set of a kind. Not to be changed."""
    folder = tmp_path_factory.mktemp("sets")
    source = write_source(folder / "cityscapes")
    return cache(lambda kind: make_set(kind, source, folder))


@pytest.fixture(params=SETS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sound(made: Callable[[str], Path], kind: str) -> Path:
    return made(kind)


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    """A copy of a sound set to damage."""
    return Path(shutil.copytree(sound, tmp_path / "copy"))


def verify(data: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run("data/verify.py", "--data", data, "--workers", 1, *arguments)


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


def is_tried(kind: str, case: Case) -> bool:
    """Damage that is the same for all sets is tried with one."""
    return kind == "ssd" or case.deep or (bool(case.sets) and "inflated" not in kind)


def assert_sound(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert summary(done)["sound"] and summary(done)["damage"] == {}


@pytest.mark.parametrize(
    ("kind", "case"),
    [(kind, case) for kind in SETS for case in cases(kind) if is_tried(kind, case)],
    ids=lambda v: getattr(v, "name", v),
)
def test_damage_is_found_and_named(made: Callable[[str], Path], kind: str, case: Case, tmp_path: Path) -> None:
    root = Path(shutil.copytree(made(kind), tmp_path / "copy"))
    hurt = case.hurt(root)
    done = verify(root, "--full")
    assert (done.returncode, done.stderr) == (1, ""), done.stdout
    assert summary(done)["damage"] == case.counts, done.stdout
    assert case.words in said_of(hurt, root, done.stdout), done.stdout


@pytest.mark.parametrize("depth", [(), ("--sample", 5), ("--full",)])
def test_a_sound_set_is_sound_at_any_depth(sound: Path, depth: tuple[object, ...]) -> None:
    done = verify(sound, *depth)
    assert_sound(done)
    told = summary(done)
    apart = ("manifest.json", "plan.json")
    files = [
        path for path in sound.rglob("*") if path.is_file() and "shards" not in path.parts and path.name not in apart
    ]
    assert (told["files"], told["bytes"]) == (len(files), sum(path.stat().st_size for path in files))
    labels = len([path for path in files if path.suffix in (".npy", ".json")])
    assert (
        told["read_files"] == told["files"] if depth != ("--sample", 5) else labels <= told["read_files"] <= labels + 5
    )


def test_a_sound_set_of_links_and_copies_is_sound(sound: Path, tmp_path: Path) -> None:
    shutil.copytree(sound, tmp_path / "moved" / "hard", copy_function=os.link)
    assert_sound(verify(tmp_path / "moved" / "hard", "--full"))
    shutil.copytree(sound, tmp_path / "soft", copy_function=lambda source, target: os.symlink(source, target))
    assert_sound(verify(tmp_path / "soft", "--full"))
    (tmp_path / "folders").mkdir()
    for path in sound.iterdir():
        (tmp_path / "folders" / path.name).symlink_to(path)
    (tmp_path / "data").symlink_to(tmp_path / "folders")
    assert_sound(verify(tmp_path / "data", "--full"))
    undated = shutil.copytree(sound, tmp_path / "undated", copy_function=shutil.copyfile)
    (pictures(undated)[0].parent / ".nfs0000000002c3e1f400000a2b").write_bytes(b"of a file that is still open")
    (undated / ".snapshot").mkdir()
    assert_sound(verify(undated, "--full", "--workers", 2))


@pytest.mark.parametrize("kind", ["ssd"])
def test_a_set_that_cannot_be_written_is_read_and_left_as_it_is(copy: Path) -> None:
    paths = [copy, *copy.rglob("*")]
    for path in paths:
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = {path: path.stat().st_mtime_ns for path in paths}
    assert_sound(verify(copy, "--full"))
    flip(pictures(copy)[0]) if os.geteuid() == 0 else None
    verify(copy, "--full")
    for path in paths:
        path.chmod(0o755)
    assert sorted([copy, *copy.rglob("*")]) == sorted(paths)
    assert {path: path.stat().st_mtime_ns for path in paths if path.is_dir()}.items() <= before.items()


def test_quick_finds_what_names_and_sizes_tell_and_any_damage_to_labels(copy: Path) -> None:
    """The sample is one file, so that what is found is not found by it, or by it too."""
    removed(pictures(copy)[0])
    os.truncate(pictures(copy)[0], 100)
    index = next(path for path in sorted(copy.rglob("*.npy")) if path.stat().st_size)
    flip(index, 0.9)
    done = verify(copy, "--sample", 1)
    assert done.returncode == 1
    assert summary(done)["damage"] == {"missing": 1, "truncated": 1, "altered labels": 1}


@pytest.mark.parametrize("kind", ["ssd"])
def test_a_sample_says_what_it_would_find_and_can_be_drawn_again(copy: Path) -> None:
    for path in pictures(copy)[::2]:
        flip(path)
    said = {verify(copy, "--sample", 3, "--seed", 5).stdout.splitlines()[-2] for _ in range(2)}
    assert len(said) == 1
    assert (
        "Where 63.16% of the files are altered, a sample of 3 finds it with 95% certainty"
        in verify(copy, "--sample", 3).stdout
    )
    found = [summary(verify(copy, "--sample", 6, "--seed", seed))["damage"].get("altered", 0) for seed in range(4)]
    assert sum(found) > 0 and max(found) <= 3


def test_what_to_run_again_mends_the_set(made: Callable[[str], Path], kind: str, copy: Path) -> None:
    """Each printed command is run as it stands, but for the folder of the programs."""
    flip(pictures(copy)[1])
    written(pictures(copy)[0].with_name("mine.png"))
    written(copy / ".index.host.77.partial" / "a.npy")
    done = verify(copy, "--full")
    commands = [line.partition(": ")[2] for line in done.stdout.splitlines() if line.startswith("to ")]
    assert [command.split()[0] for command in commands] == ["rm", "python", "python"], done.stdout
    for command in commands:
        program, *arguments = shlex.split(command)
        run = [sys.executable, "-B"] if program == "python" else [program]
        subprocess.run([*run, *arguments], cwd=TRAINING.parent, capture_output=True)
    assert_sound(verify(copy, "--full"))
    assert [path.read_bytes() for path in pictures(copy)] == [path.read_bytes() for path in pictures(made(kind))]


def test_drop_forgets_damaged_shards_only(copy: Path) -> None:
    hurt = pictures(copy)[0].parent.name
    flip(pictures(copy)[0])
    before = {path.stem for path in records(copy)}
    done = verify(copy, "--full", "--drop")
    assert (done.returncode, summary(done)["dropped_records"]) == (1, 1)
    assert before - {path.stem for path in records(copy)} == {hurt}
    assert "dropped the records of 1 shards" in done.stdout and "--drop" not in done.stdout


READ_ONLY = 'mount --bind "$1" "$1"; mount -o remount,ro,bind "$1"; shift; exec "$@"'


@pytest.mark.parametrize("kind", ["ssd, inflated"])
def test_what_was_found_is_told_where_nothing_can_be_dropped(copy: Path) -> None:
    need_mounting()
    removed(pictures(copy)[0])
    program = [sys.executable, str(TRAINING / "data" / "verify.py"), "--data", str(copy), "--full", "--drop"]
    done = subprocess.run([*MOUNTING, READ_ONLY, "sh", str(copy), *program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (1, ""), done.stdout + done.stderr
    assert summary(done)["damage"] == {"missing": 1} and summary(done)["dropped_records"] == 0
    assert "could not drop the records of damaged shards: " in done.stdout and "Read-only file system" in done.stdout
    assert "to forget what is damaged: " in done.stdout


@pytest.mark.parametrize("kind", ["ssd"])
def test_a_name_that_cannot_be_printed_is_told_in_one_row(copy: Path) -> None:
    os.close(os.open(os.fsencode(copy) + b"/a\nb\xff", os.O_CREAT))
    done = verify(copy)
    assert (done.returncode, done.stderr, summary(done)["damage"]) == (1, "", {"extra": 1})
    assert "'a\\nb\\udcff'" in done.stdout


@pytest.mark.parametrize("kind", ["ssd"])
def test_damaged_hard_links_lead_to_their_source(sound: Path, tmp_path: Path) -> None:
    linked = Path(shutil.copytree(sound, tmp_path / "linked", copy_function=os.link))
    victim = pictures(linked)[0]
    content = victim.read_bytes()
    flip(victim)
    try:
        assert "1 damaged files are hard links" in verify(linked, "--full").stdout
    finally:
        victim.write_bytes(content)


@pytest.mark.parametrize("kind", ["ssd"])
def test_what_cannot_be_verified_is_status_2(copy: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for data, words in ((tmp_path / "nowhere", "no such folder"), (tmp_path / "empty", "there are no records")):
        assert_refused(verify(data), f"{data}", words)
    manifest = copy / "manifest.json"
    text = manifest.read_text()
    for schema, words in ((1, "of an earlier version"), (3, "of a later version")):
        manifest.write_text(text.replace('"schema": 2', f'"schema": {schema}'))
        assert_refused(verify(copy), str(manifest), words)
    assert_refused(verify(copy, "--sample", 0), "--sample must be at least 1", "", lines=2)


def assert_refused(done: subprocess.CompletedProcess[str], *words: str, lines: int = 1) -> None:
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) >= lines and all(word in done.stderr for word in words), done.stderr
    assert "Traceback" not in done.stderr
