"""Reading an annotation file: the same boxes as a plain reading gives, and every broken rule refused by name."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from index_data import as_lists, document, plain, write

from training.common.errors import UserError
from training.data.indexing.index import open_index
from training.data.indexing.index_build import build_index

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
@example(  # two problems, the second of which was in another block
    records=(
        ['"id": 1, "file_name": "a", "width": 100, "height": 50, "id": 0'],
        [
            '"id": 5, "image_id": 1, "category_id": 5, "bbox": [1, 2, 30, 40.5], "iscrowd": 0',
            '"id": 5, "category_id": 5, "bbox": [1, 2, 30, 40.5], "iscrowd": 0',
        ],
    )
)
def test_quick_and_careful_reading_tell_the_same_of_odd_records(records: tuple[list[str], list[str]]) -> None:
    """NaN is no JSON, yet has always been read; only careful reading does.

    It is as long as the other, so that blocks end alike: of problems in two blocks, that of the first is told.
    """
    assert outcome(*records, '"more": 100') == outcome(*records, '"more": NaN')


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
