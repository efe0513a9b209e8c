"""The index of an annotation file: the same boxes as a plain reading gives, made once, and never an old one."""

from __future__ import annotations

import json
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_data_programs import convert, summary, tree

from training.common.errors import UserError
from training.data.index import open_index, write_index
from training.data.index_build import Index, build_index
from training.data.index_places import index_folder

ROOT = Path(__file__).resolve().parents[2]


def document() -> dict[str, Any]:
    return {
        "images": [
            {"id": 7, "file_name": "a/7.png", "width": 100, "height": 50},
            {"id": 3, "file_name": "a/3.png", "width": 100, "height": 50},
            {"id": 9, "file_name": "b/9.png", "width": 100, "height": 50},
        ],
        "annotations": [
            {"id": 1, "image_id": 3, "category_id": 5, "bbox": [10, 10, 20, 20], "iscrowd": 0},
            {"id": 2, "image_id": 7, "category_id": 2, "bbox": [10, 20, 30, 10]},
            {"id": 3, "image_id": 3, "category_id": 2, "bbox": [90, 40, 30, 30], "iscrowd": 0},
            {"id": 4, "image_id": 9, "category_id": 2, "bbox": [90, 40, 30, 30], "iscrowd": 1},
        ],
        "categories": [{"id": 5, "name": "car"}, {"id": 2, "name": "person"}],
    }


def write(path: Path, content: dict[str, Any] | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SCALEOUT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def annotations(tmp_path: Path, cache: Path) -> Path:
    return write(tmp_path / "data" / "instances.json", document())


class Said(list[str]):
    """What was told the user."""

    def __call__(self, line: str) -> None:
        self.append(line)

    def has(self, text: str) -> bool:
        return any(text in line for line in self)


def as_lists(index: Index) -> dict[str, Any]:
    images = range(len(index.image_ids))
    spans = [slice(index.box_offsets[i], index.box_offsets[i + 1]) for i in images]
    return {
        "classes": index.classes,
        "category_ids": index.category_ids,
        "image_ids": index.image_ids.tolist(),
        "names": [index.name(i) for i in images],
        "without_box": [index.name(len(images) + i) for i in range(index.images_without_box)],
        "boxes": [index.boxes[span].tolist() for span in spans],
        "labels": [index.labels[span].tolist() for span in spans],
    }


def plain(text: str) -> dict[str, Any]:
    """The same, from a plain reading of all at once."""
    content = json.loads(text)
    category_ids = [record["id"] for record in content["categories"]]
    sizes = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
    boxes: dict[int, list[list[float]]] = {number: [] for number in sizes}
    labels: dict[int, list[int]] = {number: [] for number in sizes}
    for record in content["annotations"]:
        left, top, width, height = record["bbox"]
        if record.get("iscrowd") or min(width, height) < 0.1:
            continue
        wide, high = sizes[record["image_id"]]
        corners = [left / wide, top / high, (left + width) / wide, (top + height) / high]
        box = [float(np.float32(min(1, max(0, side)))) for side in corners]
        if box[2] > box[0] and box[3] > box[1]:
            boxes[record["image_id"]].append(box)
            labels[record["image_id"]].append(category_ids.index(record["category_id"]) + 1)
    names = {image["id"]: image["file_name"] for image in content["images"]}
    used = [number for number in sizes if boxes[number]]
    return {
        "classes": [record["name"] for record in content["categories"]],
        "category_ids": category_ids,
        "image_ids": used,
        "names": [names[number] for number in used],
        "without_box": [names[number] for number in sizes if not boxes[number]],
        "boxes": [boxes[number] for number in used],
        "labels": [labels[number] for number in used],
    }


text = st.text(st.sampled_from('{}[]",:\\ab 0é😀\n\ud800'), max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)
segmentation = st.lists(st.lists(st.floats(0, 100), max_size=8), max_size=2) | st.fixed_dictionaries(
    {"size": st.lists(st.integers(1, 99), min_size=2, max_size=2), "counts": text}
)


@st.composite
def coco(draw: st.DrawFn) -> dict[str, Any]:
    ids = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=6, unique=True))
    category_ids = draw(st.lists(st.integers(0, 90), min_size=1, max_size=4, unique=True))
    side = st.integers(1, 400) | st.floats(0.5, 400)
    number = st.integers(-50, 450) | st.floats(-50, 450)
    name = text.map(lambda some: "n" + some)
    images = [{"id": i, "file_name": draw(name), "width": draw(side), "height": draw(side)} for i in ids]
    annotations = [
        {
            "image_id": draw(st.sampled_from(ids)),
            "category_id": draw(st.sampled_from(category_ids)),
            "bbox": [draw(number) for _ in range(4)],
            **draw(st.fixed_dictionaries({}, optional={"iscrowd": st.sampled_from([0, 1]), "id": st.integers()})),
            **draw(st.fixed_dictionaries({}, optional={"segmentation": segmentation, "more": values})),
        }
        for _ in range(draw(st.integers(0, 8)))
    ]
    annotations.append({"image_id": ids[0], "category_id": category_ids[0], "bbox": [0, 0, 0.5, 0.5]})
    categories = [{"id": k, "name": f"{draw(name)}{k}"} for k in category_ids]
    parts: dict[str, Any] = {"images": images, "annotations": annotations, "categories": categories}
    parts |= {f"{key}?": value for key, value in draw(st.dictionaries(text, values, max_size=3)).items()}
    return {key: parts[key] for key in draw(st.permutations(list(parts)))}


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    content=coco(),
    indent=st.sampled_from([None, 0, 3]),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,\n ", "\t:\r\n")]),
    escaped=st.booleans(),
    block_bytes=st.integers(1, 400),
)
def test_any_coco_file_gives_what_a_plain_reading_gives(
    content: dict[str, Any], indent: int | None, separators: tuple[str, str], escaped: bool, block_bytes: int
) -> None:
    written = json.dumps(content, indent=indent, separators=separators, ensure_ascii=escaped)
    if "\ud800" in written:  # cannot stand in a file unless it is escaped
        written = json.dumps(content, indent=indent, separators=separators)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "instances.json", written)
        index, source = build_index(path, 1, block_bytes)
        assert source.bytes == path.stat().st_size
    assert as_lists(index) == plain(written)


numbers = ["0", "-0", "7", "2.5", "1e-400", "1e400", "5e-324", "NaN", "-Infinity", str(2**63), str(10**320), "true"]
unusual = st.sampled_from([*numbers, '""', '"7"', '"\\ud800"', '"a\\u0000"', '"a\\n"', "[]", "[0, 0, 1]", "{}", "null"])
box = st.lists(st.sampled_from(numbers), min_size=4, max_size=4).map(lambda sides: f"[{', '.join(sides)}]")


def record_text(members: dict[str, str], draw: st.DrawFn) -> str:
    """A record whose members are JSON; one may be missing or unusual, or stand there twice."""
    keys = list(members)
    changes = [(key, draw(unusual | box)) for key in draw(st.lists(st.sampled_from(keys), max_size=1))]
    order = draw(st.permutations([*members.items(), *changes, *draw(st.lists(st.just(("\\ud800", "1")), max_size=1))]))
    missing = draw(st.sampled_from([*([None] * 20), *keys]))
    return ", ".join(f'"{key}": {text}' for key, text in order if key != missing)


@st.composite
def odd(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Images and annotations, each as the text inside its braces, most of them sound."""
    image = {"id": "1", "file_name": '"a"', "width": "100", "height": "50"}
    annotation = {"id": "5", "image_id": "1", "category_id": "5", "bbox": "[1, 2, 30, 40.5]", "iscrowd": "0"}
    images = [record_text(image | {"id": str(number)}, draw) for number in range(1, draw(st.integers(2, 3)))]
    return images, [record_text(annotation, draw) for _ in range(draw(st.integers(1, 4)))]


def outcome(images: list[str], annotations: list[str], member: str) -> dict[str, Any] | str:
    """The index of a file whose records have one more member, or the sentence that refuses it."""
    lists = [", ".join(f"{{{text}, {member}}}" for text in texts) for texts in (images, annotations)]
    categories = '[{"id": 5, "name": "car"}]'
    written = f'{{"images": [{lists[0]}], "annotations": [{lists[1]}], "categories": {categories}}}'
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "instances.json", written)
        try:
            return as_lists(build_index(path, 1, 200)[0])
        except UserError as error:
            return str(error).replace(folder, "")


@settings(max_examples=300, deadline=None)
@given(records=odd())
def test_quick_and_careful_reading_tell_the_same_of_odd_records(records: tuple[list[str], list[str]]) -> None:
    """NaN is no JSON, yet has always been read; only careful reading does."""
    assert outcome(*records, '"more": 0') == outcome(*records, '"more": NaN')


@pytest.mark.parametrize(
    "member",
    [
        '"more": NaN',
        '"\\ud800": "\\udc00"',
        '"bbox": [2, 2, 2, 2.0000000000000000000000000001]',
        '"\\u0062box": [3, 3, 3, 123456789012345678901234567890]',
        '"iscrowd": [NaN]',
        '"iscrowd": ""',
        '"iscrowd": 1e-400',
        '"iscrowd": {"\\ud800": 0}',
        '"iscrowd": 111111111111111111111111111111',
        f'"more": {"7" * 4300}',
        f'"more": {"[" * 200}{"]" * 200}',
    ],
)
def test_members_that_are_unusual_are_read_as_ever(annotations: Path, member: str) -> None:
    written = annotations.read_text().replace('"category_id": 2,', f'"category_id": 2, "bbox": [1, 1, 1, 1], {member},')
    write(annotations, written.replace(', "bbox": [90, 40, 30, 30]', "").replace(', "bbox": [10, 20, 30, 10]', ""))
    for block_bytes in (60, 1 << 20):
        assert as_lists(build_index(annotations, 1, block_bytes)[0]) == plain(annotations.read_text())


@pytest.mark.parametrize(
    ("member", "sentence"),
    [
        (b'"more": "\xff"', "is not JSON: it is not UTF-8 in the "),
        (b'"\xed\xa0\x80": 0', "is not JSON: it is not UTF-8 in the "),
        (b'"more": ' + b"7" * 4301, r"is not JSON that can be read: Exceeds the limit \(4300 digits\)"),
        (b'"more": ' + b"[" * 5000 + b"]" * 5000, "is not JSON that can be read: maximum recursion depth exceeded"),
        (b'"more": "\t"', "is not JSON: Invalid control character at in the "),
        (b'"more": 01', "is not JSON: Expecting ',' delimiter in the "),
        (b'"more": [1,]', "is not JSON: Expecting value in the "),
        (b'"more": tru', "is not JSON: Expecting value in the "),
    ],
)
def test_members_that_are_broken_are_refused_though_nothing_uses_them(
    annotations: Path, member: bytes, sentence: str
) -> None:
    annotations.write_bytes(annotations.read_bytes().replace(b'"category_id": 5', b'"category_id": 5, ' + member))
    for block_bytes in (60, 1 << 20):
        with pytest.raises(UserError, match=sentence):
            build_index(annotations, 1, block_bytes)


def test_parsing_by_several_processes_gives_the_same(annotations: Path) -> None:
    assert as_lists(build_index(annotations, 3, 100)[0]) == plain(annotations.read_text())


def changed(**changes: Any) -> dict[str, Any]:
    """The document with keys of its second image, first annotation or second category changed; ... takes one away."""
    content = document()
    records = {"image": content["images"][1], "box": content["annotations"][0], "category": content["categories"][1]}
    for name, value in changes.items():
        what, _, key = name.partition("_")
        if value is ...:
            del records[what][key]
        else:
            records[what][key] = value
    return content


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is not JSON"),
        ("{", "is not JSON"),
        ('{"images": [', "it ends inside an array"),
        ('{"images": [}', "is not JSON"),
        ('{"images": [5}, "annotations": [], "categories": []}', "is not JSON"),
        ('{"images": [], "annotations": [}, "categories": []}', "is not JSON"),
        ('{"images": [], "annotations": [], "categories": []} x', "is not JSON: Extra data"),
        ('{"images": [{"id": 1},], "annotations": [], "categories": [{"id": 1, "name": "car"}]}', "is not JSON"),
        ('{"images": [[1] [2]], "annotations": [], "categories": [{"id": 1, "name": "car"}]}', "is not JSON"),
        ("[]", "not a COCO annotation file: it holds no JSON object"),
        ("3", "not a COCO annotation file: it holds no JSON object"),
        ('{"images": [], "annotations": []}', "not a COCO annotation file: 'categories' is missing"),
        ('{"images": {}, "annotations": [], "categories": []}', "'images' is no list"),
        ('{"images": [], "images": [], "annotations": [], "categories": []}', "the key 'images' 2 times"),
        ({"images": [], "annotations": [], "categories": []}, "names no categories"),
        ({**document(), "annotations": []}, "lists 3 images and none of them has a box"),
        ({**document(), "annotations": document()["annotations"][3:]}, "lists 3 images and none of them has a box"),
        ({**document(), "images": [5]}, "the image 5 is no object"),
        ({**document(), "annotations": [5]}, "the annotation 5 is no object"),
        (changed(image_id=7), "two images have the id 7"),
        (changed(image_id="7"), "the image 'a/3.png' has the id '7', which is no integer"),
        (changed(image_id=2**63), "the image 'a/3.png' has the id 9223372036854775808"),
        (changed(image_file_name=...), "the image 3 has the file_name None"),
        (changed(image_file_name="a\0b"), "the image 3 has the file_name"),
        (changed(image_width=...), r"the image a/3\.png has the width None, which is no number of pixels above 0"),
        (changed(image_height=0), r"the image a/3\.png has the height 0"),
        (changed(image_height=float("nan")), r"the image a/3\.png has the height nan"),
        (changed(box_image_id=4), "an annotation names the image 4, which is not listed"),
        (changed(box_image_id=3.5), r"the annotation 1 has the image_id 3\.5"),
        (changed(box_category_id=4), "an annotation names the category 4, which is not listed"),
        (changed(box_category_id=True), "the annotation 1 has the category_id True"),
        (changed(box_bbox=...), "the annotation 1 has the bbox None, which is not four finite numbers"),
        (changed(box_bbox=[1, 2, 3]), r"the annotation 1 has the bbox \[1, 2, 3\]"),
        (changed(box_bbox=[1, 2, 3, 4, 5]), "the annotation 1 has the bbox"),
        (changed(box_bbox=[1, 2, 3, "4"]), "the annotation 1 has the bbox"),
        (changed(box_bbox=[1, 2, 3, float("inf")]), "the annotation 1 has the bbox"),
        (changed(box_bbox=[1, 2, 3, 10**400]), "the annotation 1 has the bbox"),
        (changed(box_bbox="1234"), "the annotation 1 has the bbox '1234'"),
        (changed(category_id=5), "two categories have the id 5"),
        (changed(category_name="car"), "two categories have the name 'car'"),
        (changed(category_name=...), "the category 2 has no name"),
        (changed(category_id=None), "the category 'person' has the id None"),
    ],
)
def test_annotations_that_break_a_rule_are_refused_by_name(
    tmp_path: Path, cache: Path, content: dict[str, Any] | str, sentence: str
) -> None:
    path = write(tmp_path / "instances.json", content)
    with pytest.raises(UserError, match=sentence) as refused:
        open_index(path, print)
    assert str(path) in str(refused.value)
    assert not list(cache.glob("*/*index*"))


def test_a_missing_file_and_a_truncated_one_are_told(annotations: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*no\.json: No such file"):
        open_index(annotations.with_name("no.json"), print)
    annotations.write_bytes(annotations.read_bytes()[:-200])
    with pytest.raises(UserError, match="is not JSON: it ends inside"):
        open_index(annotations, print)


def test_a_file_that_is_not_utf8_is_refused(annotations: Path) -> None:
    annotations.write_bytes(annotations.read_bytes().replace(b"a/7", b"\xff/7"))
    with pytest.raises(UserError, match="it is not UTF-8"):
        open_index(annotations, print)


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
from training.data.index import open_index
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
    waiting = another(path)
    assert waiting.stdout and "waiting for another process" in waiting.stdout.readline()
    builder.send_signal(signal.SIGKILL)
    builder.communicate()
    out, err = waiting.communicate(timeout=120)
    assert out.startswith("indexing") and out.endswith("50000\n") and not err
    (entry,) = cache.iterdir()
    assert sorted(path.name for path in entry.iterdir()) == ["index", "lock"]


def test_a_full_disk_is_told_with_what_to_do(tmp_path: Path) -> None:
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    small = f"mount -t tmpfs -o size=300k none {tmp_path}/small"
    (tmp_path / "small").mkdir()
    if subprocess.run([*mount, small], capture_output=True).returncode:
        pytest.skip("this user cannot mount a small file system")
    path = large(tmp_path / "instances.json", 20_000)
    run = another(path, *mount, f'{small} && exec "$@"', "-", SCALEOUT_CACHE_DIR=str(tmp_path / "small"))
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


def test_converting_again_adds_the_index_that_an_earlier_release_did_not_write(
    scenes: Path, tmp_path: Path, cache: Path
) -> None:
    out = tmp_path / "out"
    convert(scenes, out)
    whole = tree(out)
    shutil.rmtree(index_folder(out / "annotations" / "instances_train2017.json"))
    assert summary(convert(scenes, out))["skipped"]
    assert tree(out) == whole
    said = Said()
    open_index(out / "annotations" / "instances_train2017.json", said)
    assert not said
