"""A file's blocks: quick reading takes nothing that careful reading refuses, and gives the same."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from training.data.errors import DataError
from training.data.indexing.json_blocks import Block, Outline, outline


class Record(msgspec.Struct):
    id: int
    box: tuple[float, float]
    name: str = ""
    flag: Any = None


@contextmanager
def file(content: bytes) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "some.json"
        path.write_bytes(content)
        yield path


NUMBERS = "0 -0 7 -12 1.5 -2e3 1E-400 1e400 0.1000000000000000055511151231257827 9007199254740993 9223372036854775808"
NO_NUMBERS = "NaN -Infinity 01 1. .5 - +1 1e 0x1 1_0 tru nulll None"
STRINGS = ['"a"', '"}, {"', '"\\""', '"é"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\u00"', '"\\q"', '"\t"', "'a'", '"']
NESTED = ["[1, 2.5]", "[1,2,3]", "[1,]", '{"a": {}}', '{"a": 1,}', "{1: 2}", "[[], {}]", "[", "]", "{", "}", ""]
value = st.sampled_from([*NUMBERS.split(), *NO_NUMBERS.split(), *STRINGS, *NESTED, "true", "null", "7" * 30])
key = st.sampled_from(['"id"', '"i\\u0064"', '"box"', '"name"', '"flag"', '"more"', '"\\ud800"', '""', "id"])
comma = st.sampled_from([", "] * 8 + [",", " ,\n", ",,", " ", "\x0b,", ".5,"])
colon = st.sampled_from([": "] * 8 + [":", "\t:\r\n", " ", "::"])


@st.composite
def record(draw: st.DrawFn) -> str:
    members = ['"id": 7', '"box": [1, 2.5]', '"name": "a"'][: draw(st.integers(2, 3))]
    members += [draw(key) + draw(colon) + draw(value) for _ in range(draw(st.integers(0, 2)))]
    return "{" + draw(comma).join(members) + "}"


@st.composite
def elements(draw: st.DrawFn, most: int = 3) -> bytes:
    """What may stand between the brackets of an array, now and then with a byte that is not to be there."""
    parts = [draw(record() | value) if draw(st.integers(0, 9)) == 0 else draw(record()) for _ in range(most)]
    text = "".join(accumulate(parts, lambda left, right: f"{draw(comma)}{right}", initial="")).encode()
    if draw(st.integers(0, 3)):
        return text
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.sampled_from([b"\xff", b"\x00", b"}", b"]", b'"', b"\\", b"\xed\xa0\x80"])) + text[at:]


def same(careful: Any, quick: Record) -> bool:
    wanted = (careful["id"], careful["box"], careful.get("name", ""), careful.get("flag"))
    return repr(wanted) == repr((quick.id, careful["box"], quick.name, quick.flag)) and quick.box == tuple(
        float(side) for side in careful["box"]
    )


@settings(max_examples=300, deadline=None)
@given(text=elements(), first=st.booleans())
@example(b'{"id": 1, "box": [1, 2]}', True)
@example(b' , {"id": 1, "box": [1, 2], "more": {"a": [NaN]}}', False)
@example(b'{"id": 1, "box": [1, 2], "more": ' + b"7" * 4301 + b"}", True)
@example(b'{"id": 1, "box": [1, 2], "more": "\xff"}', True)
@example(b'{"id": 1, "box": [1, 2], "more": ' + b"[" * 5000 + b"]" * 5000 + b"}", True)
@example(b" ", False)
@example(b", ", False)
@example(b'.5, {"id": 1, "box": [1, 2]}', False)
@example(b'\x0b, {"id": 1, "box": [1, 2]}', False)
@example(b'{"id": 1, "box": [1, 2], "id": 3}', True)
def test_what_is_taken_quickly_is_what_careful_reading_gives(text: bytes, first: bool) -> None:
    with file(text) as path:
        block = Block(path, 0, len(text), first)
        quick = block.parse_as(Record)
        if quick is not None:
            careful = block.parse()
            assert len(careful) == len(quick) > 0 and all(map(same, careful, quick))


def test_usual_elements_are_taken_quickly() -> None:
    text = b', {"more": {"a": ["\xc3\xa9"]}, "id": 7, "box": [1, 2.5], "flag": 1},\n{"id": 8, "box": [0, -1]}'
    with file(text) as path:
        assert Block(path, 0, len(text), False).parse_as(Record) == [
            Record(7, (1.0, 2.5), flag=1),
            Record(8, (0.0, -1.0)),
        ]


@pytest.mark.parametrize("length", [64, 100, 128, 134, 215, 256, 268, 430, 1000])
def test_elements_of_one_length_with_digits_in_the_same_places_are_taken_quickly(length: int) -> None:
    element = b'{"id": 7, "box": [1, 2], "more": '
    element += b"1" * (length - len(element) - 3) + b"}, "
    text = (element * (200_000 // length))[:-2]
    with file(text) as path:
        assert Block(path, 0, len(text), True).parse_as(Record)


def outlined(path: Path, block_bytes: int) -> Outline | str:
    try:
        return outline(path, block_bytes)
    except DataError as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(arrays=st.lists(elements(4), min_size=1, max_size=2), block_bytes=st.integers(20, 200))
def test_blocks_end_where_elements_end_however_long_they_are(arrays: list[bytes], block_bytes: int) -> None:
    """Read byte by byte, no block holds whole elements, so that each byte is looked at."""
    text = b"{%b}" % b", ".join(b'"%d": [%b]' % (number, inside) for number, inside in enumerate(arrays))
    with file(text) as path:
        careful, quick = outlined(path, 1), outlined(path, block_bytes)
    if isinstance(careful, str) or isinstance(quick, str):
        assert careful == quick
        return
    assert (careful.sha256, careful.bytes, careful.keys) == (quick.sha256, quick.bytes, quick.keys)
    assert careful.arrays.keys() == quick.arrays.keys()
    for name, blocks in quick.arrays.items():
        ends = [block.end for block in careful.arrays[name]]
        assert {block.end for block in blocks} <= set(ends) and blocks[-1].end == ends[-1]
        starts = [careful.arrays[name][0].start, *(block.end for block in blocks[:-1])]
        assert [block.start for block in blocks] == starts
        assert [block.first for block in blocks] == [True, *(False for _ in blocks[1:])]


@pytest.mark.parametrize("element", ['{"a": {"b": 1}, "c": [{}, 2]}', '{"a": "}, {"}', '{"a": NaN}', "[1, [2]]", "7"])
def test_elements_of_any_kind_are_all_in_the_blocks(element: str) -> None:
    text = f'{{"some": [{", ".join([element] * 50)}], "more": []}}'
    for block_bytes in (40, 100, 333):
        with file(text.encode()) as path:
            found = outline(path, block_bytes)
            parsed = [value for block in found.arrays["some"] for value in block.parse()]
        assert repr(parsed) == repr([json.loads(element)] * 50)
        assert element == "7" or len(found.arrays["some"]) > 50 * len(element) // (2 * block_bytes)


def test_what_stands_between_an_element_and_its_comma_is_refused() -> None:
    text = b'{"some": [{"a": 1}.5, {"a": 2}]}'
    with file(text) as path:
        (first, *others) = outline(path, 18).arrays["some"]
        assert first.parse() == [{"a": 1}]
        with pytest.raises(DataError, match="is not JSON: Expecting ',' delimiter"):
            others[0].parse()
