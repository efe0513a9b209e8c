"""What stops an inflation: one sentence says what is wrong, what is done, what is left and how to go on; nothing is lost."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from inflation_data import MEAN_MB, TRAIN, command, folders, inflate, make_base, refused, run_program
from mounting import MOUNTING, need_mounting
from test_data_programs import tree

from training.data.inflation import place

FACTOR = 12
SETTINGS = ("--factor", FACTOR, "--mean-mb", MEAN_MB)
COPIES = ("--factor", 3, "--method", "copy")


@pytest.fixture(scope="module")
def base(bases: dict[str, Path]) -> Path:
    return bases["ssd"]


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole") / "out"
    inflate("ssd", base, out, *SETTINGS)
    return out


def says(sentence: str, *parts: str) -> bool:
    return all(part in sentence for part in parts)


def in_namespace(script: str, *values: object) -> subprocess.CompletedProcess[str]:
    command = [*MOUNTING, script, "sh", *map(str, values)]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120, check=False)


SMALL = """
mount -t tmpfs -o size=300k tmpfs "$1"; shift
$2; status=$?
test $status = 2 || exit 1
set -e
mount -o remount,size=600k "$(dirname $1)"
$2 >/dev/null
rm "$1/shards/train/aachen_000000_000019.json" "$1/shards/train/aachen_000001_000019.json" "$1/manifest.json"
$2
"""


@pytest.fixture
def mount(tmp_path: Path) -> Path:
    """Where a test may mount a file system, unseen by others."""
    need_mounting()
    (tmp_path / "mount").mkdir()
    return tmp_path / "mount"


def test_more_than_the_disk_has_is_refused_before_anything_is_made_but_what_is_there_needs_no_room(
    base: Path, mount: Path
) -> None:
    """Then the disk has room for the set, and two of three shards count as not there: it has no room for one more."""
    out = mount / "out"
    done = in_namespace(SMALL, mount, out, " ".join(command("ssd", base, out, *COPIES)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 shards with 6 images to make" in done.stdout
    assert says(
        done.stderr, "error: ", ": 9 images take 0.4 MB, and 0.3 MB are free; make room, or give an --out that has it"
    )
    assert says(done.stderr, "; 0 of 9 images are done, 9 are left; then go on with: python training/ssd/inflate.py")


FEW_INODES = 'mount -t tmpfs -o size=64m,nr_inodes=20 tmpfs "$1"; exec $2'


def test_more_files_than_the_file_system_takes_are_refused_before_anything_is_made(base: Path, mount: Path) -> None:
    made = " ".join(command("ssd", base, mount / "out", "--factor", 12, "--method", "copy"))
    done = in_namespace(FEW_INODES, mount, made)
    assert done.returncode == 2
    assert says(
        done.stderr, "error: ", "36 images take 36 files, and the file system has inodes for 1", " more; give an --out"
    )


def test_what_is_refused_leaves_no_empty_folder(base: Path, mount: Path) -> None:
    out = mount / "out"
    made = " ".join(command("ssd", base, out, *COPIES))
    done = in_namespace('mount -t tmpfs -o size=100k tmpfs "$1"; $2; ls -A "$1"', mount, made)
    assert says(done.stderr, "9 images take 0.4 MB") and done.stdout == ""


STOPPED_TWICE = """
set -e
mount -t tmpfs -o size=64m tmpfs "$1"
change() { mount -o "remount,$1" "$(dirname $out)"; }
stops() { status=0; $make || status=$?; test $status = 2; }
out=$2; plan=$3; make=$4; all=$5; whole=$6
$plan >/dev/null
change ro
stops
change rw,size=400k
stops
test -z "$(find "$out" -name '.*')"
change size=64m
$all >/dev/null
diff -r "$out" "$whole"
"""


def test_a_disk_that_takes_no_more_stops_it_and_it_goes_on_later(base: Path, mount: Path, tmp_path: Path) -> None:
    """A file system that is read-only, and then full, after the plan was made."""
    out, whole = mount / "out", tmp_path / "whole"
    many = ("--factor", FACTOR, "--method", "copy")
    inflate("ssd", base, whole, *many)
    steps = [[*many, "--phase", "plan"], ["--phase", "make", "--workers", 2], [*many, "--workers", 2]]
    commands = [" ".join(command("ssd", base, out, *step)) for step in steps]
    done = in_namespace(STOPPED_TWICE, mount, out, *commands, whole)
    assert done.returncode == 0, done.stdout + done.stderr
    going_on = f"; then go on with: python training/ssd/inflate.py --source {base} --out {out} --factor 12 "
    for sentence, reason in zip(
        done.stderr.splitlines(), ("Read-only file system", "No space left on device"), strict=True
    ):
        assert sentence.startswith("error: ")
        assert says(sentence, reason, " of 36 images are done, ", " MB) are left", going_on)


@pytest.mark.parametrize("damage", ["gone", "altered"])
def test_a_frame_that_cannot_be_read_stops_it_and_it_goes_on_when_it_is_back(
    damage: str, whole: Path, tmp_path: Path
) -> None:
    source = make_base("ssd", tmp_path)
    shutil.rmtree(tmp_path / "cityscapes")
    out = tmp_path / "out"
    inflate("ssd", source, out, *SETTINGS, "--phase", "plan")
    frame = source / "train2017" / "aachen" / f"{TRAIN[1]}_leftImg8bit.png"
    content = frame.read_bytes()
    frame.unlink()
    if damage == "altered":
        frame.write_bytes(content[:-99] + b"?" + content[-98:])
    sentence = refused("ssd", source, out, *SETTINGS)
    what = (
        "is not what the base set's record says"
        if damage == "altered"
        else "cannot be read (No such file or directory)"
    )
    assert says(sentence, str(frame), what, " of 36 images are done, ", " are left; then go on with: python ")
    frame.write_bytes(content)
    inflate("ssd", source, out, *SETTINGS)
    assert {**tree(out), "manifest.json": ""} == {**tree(whole), "manifest.json": ""}


@pytest.mark.parametrize(
    ("other", "what"),
    [
        (("--factor", 4, "--method", "copy"), "--factor 3, not 4"),
        (("--factor", 3), "--method copy, not augment"),
        (("--factor", 3, "--method", "copy", "--seed", 7), "--seed 0, not 7"),
    ],
)
def test_other_settings_over_a_set_are_refused_begun_or_whole(
    other: tuple[object, ...], what: str, base: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    inflate("ssd", base, out, *COPIES, "--phase", "plan")
    for _ in ("begun", "whole", "whole without a plan"):
        before = tree(out)
        assert says(
            refused("ssd", base, out, *other), f"{out}: was begun with ", what, "give another --out, or remove it"
        )
        assert tree(out) == before
        inflate("ssd", base, out, *COPIES)
        (out / "plan.json").unlink(missing_ok=True)


def test_a_set_of_a_later_version_is_left_alone(whole: Path, base: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "out"))
    manifest = out / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"schema": 2', '"schema": 3'))
    before = tree(out)
    sentence = refused("ssd", base, out, *SETTINGS)
    assert says(sentence, f"{manifest}: schema 3, of a later version", "give another --out")
    assert tree(out) == before


def test_a_damaged_plan_with_no_manifest_is_told(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    inflate("ssd", base, out, *COPIES, "--phase", "plan")
    (out / "plan.json").write_text("")
    assert says(refused("ssd", base, out, *COPIES), f"{out / 'plan.json'}: is damaged", f"remove {out} and begin anew")


def test_another_base_set_is_refused(base: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(base, tmp_path / "other"))
    (other / "train2017/jena/jena_000000_000019_leftImg8bit.png").unlink()
    record = other / "shards/train/jena.json"
    inflate("ssd", base, tmp_path / "out", *COPIES)
    record.write_text(record.read_text().replace("jena", "yena"), encoding="utf-8")
    assert says(
        refused("ssd", other, tmp_path / "out", *COPIES), "record of train/jena is missing or altered", "convert.py"
    )


def test_nodes_must_agree_with_the_plan(base: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for phase, *given in (("make",), ("make", *COPIES), ("finish", *COPIES)):
        sentence = refused("ssd", base, out, "--phase", phase, *given)
        assert says(sentence, f"{out}: has no plan; give --phase plan with --factor first")
    inflate("ssd", base, out, *COPIES, "--phase", "plan")
    assert says(refused("ssd", base, out, "--phase", "make", "--seed", 3), "--seed 0, not 3")


@pytest.mark.parametrize("content", ["a file", "a converted set", "the other workload's"])
def test_a_folder_of_something_else_is_refused_and_kept(content: str, bases: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    if content == "a file":
        (out / "thesis.txt").write_text("mine", encoding="utf-8")
    elif content == "a converted set":
        shutil.copytree(bases["ssd"], out, dirs_exist_ok=True)
    else:
        inflate("segmentation", bases["segmentation"], out, *COPIES)
    before = tree(out), folders(out)
    assert says(
        refused("ssd", bases["ssd"], out, *COPIES), f"{out}: holds ", "this program did not write", "give another --out"
    )
    assert (tree(out), folders(out)) == before


def test_a_folder_that_another_process_works_in_is_refused(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_PATIENCE_S", 0.1)
    out = tmp_path / "out"
    inflate("ssd", base, out, *COPIES, "--phase", "plan")
    with place.at_work(out, alone=False):
        assert says(
            refused("ssd", base, out, *COPIES), f"{out}: another process is at work in it; wait until it has ended"
        )
        assert inflate("ssd", base, out, "--phase", "make").summary["images"] == 9
    with place.at_work(out, alone=True):
        assert says(refused("ssd", base, out, "--phase", "make"), "another process is at work in it")


@pytest.mark.parametrize("where", ["", "inside", ".."])
def test_a_set_is_not_made_over_inside_or_around_its_source(where: str, base: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(base, tmp_path / "outer" / "base"))
    before = tree(source)
    assert says(refused("ssd", source, source / where, *COPIES), "must lie apart from its source", "give another --out")
    assert tree(source) == before


def test_a_file_in_the_place_of_the_folder_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    assert says(refused("ssd", base, tmp_path / "out", *COPIES), "is a file; give a folder as --out")


@pytest.mark.parametrize("missing", ["folder", "manifest", "workload"])
def test_a_source_that_is_no_whole_base_set_is_refused(missing: str, bases: dict[str, Path], tmp_path: Path) -> None:
    source = bases["segmentation"] if missing == "workload" else tmp_path / "base"
    if missing == "manifest":
        shutil.copytree(bases["ssd"], source)
        (source / "manifest.json").unlink()
    assert says(
        refused("ssd", source, tmp_path / "out", *COPIES), f"{source}: no whole ssd set", "training/data/convert.py"
    )


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ((), "--factor is needed"),
        (("--factor", 0), "--factor must be at least 1"),
        (("--factor", 2, "--method", "copy", "--mean-mb", 1), "--mean-mb is for PNGs that are augmented"),
        (("--factor", 2, "--method", "copy", "--format", "jpeg"), "--format jpeg needs --method augment"),
        (("--factor", 2, "--phase", "make", "--node", 2, "--nodes", 2), "--node 2 is none of --nodes 2"),
        (("--factor", 2, "--nodes", 2), "--nodes is for --phase make"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: tuple[object, ...], what: str, base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        inflate("ssd", base, tmp_path / "out", *options)
    assert ended.value.code == 2 and what in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_program_ends_with_status_2_and_no_traceback(base: Path, tmp_path: Path) -> None:
    done = run_program(*command("ssd", tmp_path / "nowhere", tmp_path / "out", "--factor", 2)[1:])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
