"""The index of an annotation file: made once, found again, and never an old one."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from index_data import Said, as_lists, document, plain, write
from mounting import MOUNTING, need_mounting
from test_data_programs import convert, summary, tree

from training.common.errors import UserError
from training.data.indexing.index import open_index, write_index
from training.data.indexing.index_places import index_folder

ROOT = Path(__file__).resolve().parents[2]


def test_an_index_is_made_once_and_mapped_from_files(annotations: Path, cache: Path) -> None:
    said = Said()
    first = open_index(annotations, said)
    assert said.has(f"indexing {annotations} (0.0 MB), once for this node")
    assert said.has("indexed 2 images with 3 boxes in ")
    again = Said()
    second = open_index(annotations, again)
    assert not again
    assert as_lists(first) == as_lists(second) == plain(annotations.read_text())
    assert not second.boxes.flags.writeable
    assert str(cache) in Path("/proc/self/maps").read_text()


def beside(annotations: Path) -> Path:
    write_index(annotations, index_folder(annotations), 1)
    return index_folder(annotations)


def test_an_index_beside_the_file_is_taken_without_the_cache(annotations: Path, cache: Path) -> None:
    beside(annotations)
    said = Said()
    assert as_lists(open_index(annotations, said)) == plain(annotations.read_text())
    assert not said and not cache.exists()


def test_a_copy_that_kept_its_dates_is_taken_at_once(annotations: Path, tmp_path: Path, cache: Path) -> None:
    beside(annotations)
    copy = shutil.copytree(annotations.parent, tmp_path / "copy")
    said = Said()
    open_index(copy / annotations.name, said)
    assert not said and not cache.exists()


def test_a_copy_with_new_dates_is_compared_by_digest_once(annotations: Path, tmp_path: Path) -> None:
    beside(annotations)
    copy = shutil.copytree(annotations.parent, tmp_path / "copy", copy_function=shutil.copyfile) / annotations.name
    said = Said()
    assert as_lists(open_index(copy, said)) == plain(annotations.read_text())
    assert said.has("comparing its SHA-256") and not said.has("indexing")
    said.clear()
    open_index(copy, said)
    assert not said


def test_an_edited_file_never_gives_the_old_boxes(annotations: Path) -> None:
    beside(annotations)
    edited = annotations.read_text().replace("[10, 10, 20, 20]", "[10, 10, 20, 30]")
    annotations.write_text(edited)
    said = Said()
    assert as_lists(open_index(annotations, said)) == plain(edited)
    assert said.has("indexing")
    said.clear()
    assert as_lists(open_index(annotations, said)) == plain(edited)
    assert not said
    longer = edited.replace("[10, 10, 20, 30]", "[10, 10, 20.5, 30]")
    annotations.write_text(longer)
    assert as_lists(open_index(annotations, said)) == plain(longer)


def test_a_file_with_a_new_date_alone_keeps_the_nodes_index(annotations: Path) -> None:
    open_index(annotations, print)
    os.utime(annotations, (1, 1))
    said = Said()
    open_index(annotations, said)
    assert said.has("comparing its SHA-256") and not said.has("indexing")
    said.clear()
    open_index(annotations, said)
    assert not said


def _truncate(folder: Path) -> None:
    path = folder / "boxes.npy"
    path.write_bytes(path.read_bytes()[:-8])


def _pickle(folder: Path) -> None:
    np.save(folder / "labels.npy", np.array([{"a": 1}] * 3, dtype=object), allow_pickle=True)


def _other_offsets(folder: Path) -> None:
    np.save(folder / "box_offsets.npy", np.array([0, 9, 3]))


def _zip(folder: Path) -> None:
    np.savez(folder / "names", names=np.zeros(3, np.uint8))
    (folder / "names.npz").rename(folder / "names.npy")


def _other_version(folder: Path) -> None:
    meta = folder / "meta.json"
    status = meta.stat()
    meta.write_text(re.sub(r'"version": \d+', '"version": 99', meta.read_text()))
    os.utime(meta, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _pickle,
        _other_offsets,
        _zip,
        _other_version,
        lambda folder: (folder / "names.npy").unlink(),
        lambda folder: (folder / "names.npy").write_bytes(b"\x93NUMPY\x01\x00\x06\x00{'a(\n\n"),
        lambda folder: np.save(folder / "boxes.npy", np.zeros((3, 4))),
        lambda folder: np.save(folder / "image_ids.npy", np.array(3)),
        lambda folder: (folder / "meta.json").write_text("[" * 100_000),
        lambda folder: (folder / "meta.json").write_text("{}"),
        lambda folder: (folder / "meta.json").unlink(),
    ],
)
@pytest.mark.parametrize("where", ["beside", "cached"])
def test_a_damaged_index_is_made_again(annotations: Path, cache: Path, damage: Any, where: str) -> None:
    if where == "beside":
        folder = beside(annotations)
    else:
        open_index(annotations, print)
        (folder,) = cache.glob("*/index")
    damage(folder)
    said = Said()
    assert as_lists(open_index(annotations, said)) == plain(annotations.read_text())
    assert said.has("indexing")
    said.clear()
    open_index(annotations, said)
    assert not said


OPEN = """
import sys
from pathlib import Path
from training.data.indexing.index import open_index
print(len(open_index(Path(sys.argv[1]), lambda line: print(line, flush=True)).image_ids))
"""


def another(path: Path, *before: str, **environment: str) -> subprocess.Popen[str]:
    """A process that opens the index of a file, says what it is told and then the number of images."""
    command = [*before, sys.executable, "-c", OPEN, str(path)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | environment, **pipes)  # type: ignore[call-overload]


def large(path: Path, images: int) -> Path:
    content = document()
    size = {"width": 100, "height": 50}
    content["images"] = [{"id": i, "file_name": f"{i}.png", **size} for i in range(images)]
    content["annotations"] = [
        {"id": i, "image_id": i % images, "category_id": 5, "bbox": [1, 2, 3 + i % 7, 4]} for i in range(4 * images)
    ]
    return write(path, content)


def test_of_several_processes_one_makes_the_index_and_the_others_wait_for_it(tmp_path: Path, cache: Path) -> None:
    path = large(tmp_path / "instances.json", 20_000)
    lines = [ranks.communicate(timeout=120) for ranks in [another(path) for _ in range(4)]]
    assert all(out.endswith("20000\n") and not err for out, err in lines), lines
    assert sum("indexing" in out for out, _ in lines) == 1


def test_a_killed_process_leaves_nothing_that_passes_for_an_index(tmp_path: Path, cache: Path) -> None:
    path = large(tmp_path / "instances.json", 50_000)
    builder = another(path)
    deadline_s = time.monotonic() + 60
    while not list(cache.glob("*/.index.*.partial")):
        assert builder.poll() is None and time.monotonic() < deadline_s
        time.sleep(0.001)
    builder.send_signal(signal.SIGSTOP)  # else it may be done before the other has come
    waiting = another(path)
    assert waiting.stdout and "waiting for another process" in waiting.stdout.readline()
    builder.send_signal(signal.SIGKILL)
    builder.communicate()
    out, err = waiting.communicate(timeout=120)
    assert out.startswith("indexing") and out.endswith("50000\n") and not err
    (entry,) = cache.iterdir()
    assert sorted(path.name for path in entry.iterdir()) == ["index", "lock"]


def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path) -> None:
    need_mounting()
    small = f"mount -t tmpfs -o size=300k none {tmp_path}/small"
    (tmp_path / "small").mkdir()
    path = large(tmp_path / "instances.json", 20_000)
    run = another(path, *MOUNTING, f'{small} && exec "$@"', "-", SCALEOUT_CACHE_DIR=str(tmp_path / "small"))
    _, err = run.communicate(timeout=120)
    last = err.splitlines()[-1]
    assert last.startswith("training.data.errors.DataError: ") and "its disk is full" in last
    assert "set SCALEOUT_CACHE_DIR" in last and str(path) in last


def test_the_cache_follows_the_users_settings(
    annotations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCALEOUT_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    open_index(annotations, print)
    assert list((tmp_path / "xdg" / "scaleout").glob("*/index/meta.json"))
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    open_index(annotations, print)
    assert list((tmp_path / "home" / ".cache" / "scaleout").glob("*/index/meta.json"))


def test_without_a_folder_to_write_a_private_temporary_one_serves(
    annotations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEOUT_CACHE_DIR", str(annotations / "below a file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    said = Said()
    open_index(annotations, said)
    folder = tmp_path / f"scaleout-{os.geteuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700 and list(folder.glob("*/index/meta.json"))
    assert said.has(f"Not a directory; the index of instances.json goes to {folder}")
    folder.chmod(0o777)
    with pytest.raises(UserError, match=r"is not this user's alone.*set SCALEOUT_CACHE_DIR"):
        open_index(annotations, print)
    shutil.rmtree(folder)
    folder.symlink_to(tmp_path)
    with pytest.raises(UserError, match="is not this user's alone"):
        open_index(annotations, print)


def test_a_converted_set_has_an_index_of_each_split_that_opens_at_once(
    scenes: Path, tmp_path: Path, cache: Path
) -> None:
    out = tmp_path / "out"
    convert(scenes, out)
    for split in ("train", "val"):
        path = out / "annotations" / f"instances_{split}2017.json"
        said = Said()
        assert as_lists(open_index(path, said)) == plain(path.read_text())
        assert not said and not cache.exists()


def test_converting_again_makes_a_set_whose_index_is_gone(scenes: Path, tmp_path: Path, cache: Path) -> None:
    out = tmp_path / "out"
    convert(scenes, out)
    whole = tree(out)
    shutil.rmtree(index_folder(out / "annotations" / "instances_train2017.json"))
    assert not summary(convert(scenes, out))["skipped"]
    assert tree(out) == whole
    said = Said()
    open_index(out / "annotations" / "instances_train2017.json", said)
    assert not said
