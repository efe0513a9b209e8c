"""A data set is taken for made only where it is there as it would be made; else a sentence says why it is not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from damages import annotations, flip, make_set, pictures, records, removed, run, shortened, write_cityscapes, written

from training.data.manifest import Manifest, read_manifest
from training.data.match import matching_manifest


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted set. Not to be changed."""
    folder = tmp_path_factory.mktemp("match")
    return make_set("ssd", write_cityscapes(folder / "cityscapes"), folder)


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "copy"))


def manifest_of(data: Path) -> Manifest:
    manifest = read_manifest(data)
    assert manifest
    return manifest


def why_not(data: Path, manifest: Manifest) -> str:
    """Why a set does not match what `manifest` says of its making; empty where it does."""
    said: list[str] = []
    found = matching_manifest(data, "ssd", manifest.generator, manifest.source_sha256, 1, said.append)
    assert (found is None) == bool(said) and len(said) < 2
    return said[0] if said else ""


def test_a_set_matches_wherever_it_lies_and_with_whatever_libraries_it_was_made(copy: Path) -> None:
    manifest = manifest_of(copy)
    assert manifest.generator.libraries.keys() >= {"numpy", "pillow", "cityscapesscripts"}
    assert why_not(copy, manifest) == ""
    assert why_not(copy, replace(manifest, generator=replace(manifest.generator, libraries={"numpy": "1"}))) == ""
    written(pictures(copy)[0].with_name(".left.7.partial.png"))
    written(copy / "train2017" / "paris" / "notes.txt")
    assert why_not(copy, manifest) == ""


def test_another_making_does_not_match(made: Path) -> None:
    manifest = manifest_of(made)
    generator = manifest.generator
    assert "its source has changed" in why_not(made, replace(manifest, source_sha256="0"))
    assert "was made by version" in why_not(made, replace(manifest, generator=replace(generator, version=99)))
    other = replace(generator, settings={**generator.settings, "segmentation": "none"})
    sentence = why_not(made, replace(manifest, generator=other))
    assert sentence == f"{made}: was made with segmentation rle, and none is asked for"


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    ("an image", lambda r: removed(pictures(r)[4]), "_leftImg8bit.png is not there"),
    ("a size", lambda r: shortened(pictures(r)[4], 0.5), "has another size than its record says"),
    ("a folder", lambda r: removed(pictures(r)[0].parent), "nor is its folder"),
    ("the annotations", lambda r: removed(annotations(r)), "is not there"),
    ("an extra image", lambda r: written(pictures(r)[0].with_name("x_leftImg8bit.png")), "belongs to no shard"),
    ("an extra folder", lambda r: written(r / "train2017/paris/x_leftImg8bit.png"), "is a folder of no shard"),
    ("a record", lambda r: removed(records(r)[0]), "is missing"),
    ("a bit of a record", lambda r: flip(records(r)[0]), "shards/train/jena.json"),
    ("a bit of the manifest", lambda r: flip(r / "manifest.json", 0.9), "is damaged, or of an earlier version"),
    ("the manifest", lambda r: shortened(r / "manifest.json", 0.9), "is damaged, or of an earlier version"),
]


@pytest.mark.parametrize(("hurt", "words"), [case[1:] for case in DAMAGE], ids=[case[0] for case in DAMAGE])
def test_damage_that_shows_without_reading_does_not_match(
    copy: Path, hurt: Callable[[Path], object], words: str
) -> None:
    manifest = manifest_of(copy)
    hurt(copy)
    assert words in why_not(copy, manifest)


def test_a_set_of_an_earlier_version_is_made_anew_in_its_place(copy: Path) -> None:
    document = json.loads((copy / "manifest.json").read_text())
    earlier = {"schema": 1, "workload": "ssd", "converter": 1, "annotations_sha256": {}}
    kept = {name: document[name] for name in ("source", "source_sha256", "categories", "splits")}
    (copy / "manifest.json").write_text(json.dumps({**earlier, **kept}))
    shutil.rmtree(copy / "shards")
    done = run("data/convert.py", "--cityscapes", document["source"], "--out", copy, "--workers", 1)
    assert (done.returncode, done.stderr) == (0, "")
    assert "is damaged, or of an earlier version without checksums: converting anew" in done.stdout
    assert manifest_of(copy) == replace(manifest_of(copy), source=document["source"])
    assert not json.loads(done.stdout.splitlines()[-1])["skipped"]


def test_a_set_whose_manifest_is_lost_is_made_anew_in_its_place(copy: Path) -> None:
    source = manifest_of(copy).source
    (copy / "manifest.json").unlink()
    done = run("data/convert.py", "--cityscapes", source, "--out", copy, "--workers", 1)
    assert (done.returncode, done.stderr) == (0, "")
    assert manifest_of(copy).source == source


@pytest.mark.parametrize("lost", [None, "manifest.json"])
@pytest.mark.parametrize(
    "name", ["train2017/mine/f", "train2017/ulm/notes.txt", "annotations/a.json", "shards/x/y.txt"]
)
def test_a_file_of_the_users_inside_a_set_is_not_lost(made: Path, copy: Path, name: str, lost: str | None) -> None:
    source = manifest_of(made).source
    written(copy / name)
    if lost:
        removed(copy / lost)
    done = run("data/convert.py", "--cityscapes", source, "--out", copy, "--workers", 1, "--segmentation", "none")
    assert done.returncode == 2 and (copy / name).read_bytes() == b"x"
    what = f"would be made anew, but holds {name}, which is not of the data set"
    assert done.stderr == f"error: {copy}: {what}; move that elsewhere, or give another --out\n"


@pytest.mark.parametrize(
    "hurt",
    [
        lambda r: removed(pictures(r)[4]),
        lambda r: removed(pictures(r)[0].parent),
        lambda r: removed(annotations(r)),
        lambda r: removed(records(r)[0]),
        lambda r: removed(r / "shards"),
        lambda r: flip(records(r)[0]),
        lambda r: shortened(records(r)[0], 0.5),
        lambda r: written(pictures(r)[0].with_name(".left.7.partial.png")),
        lambda r: written(r / ".index.host.77.partial/a.npy"),
        lambda r: written(r / "train2017" / ".DS_Store"),
    ],
)
def test_a_damaged_set_is_made_anew_in_its_place(made: Path, copy: Path, hurt: Callable[[Path], object]) -> None:
    hurt(copy)
    source = manifest_of(made).source
    done = run("data/convert.py", "--cityscapes", source, "--out", copy, "--workers", 1, "--segmentation", "none")
    assert (done.returncode, done.stderr) == (0, "")
    assert manifest_of(copy).generator.settings["segmentation"] == "none"
