"""A JSON object of any size, outlined in one pass: its small values, and its arrays as blocks to parse one by one."""

from __future__ import annotations

import gc
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec
import numpy as np

from training.data.errors import DataError

BLOCK_BYTES = 512 << 10  # parsed, it takes about ten times as much memory
_QUOTE, _BACKSLASH, _OPEN, _CLOSE = range(1, 5)
_KIND_OF = {'"': _QUOTE, "\\": _BACKSLASH, "[": _OPEN, "{": _OPEN, "]": _CLOSE, "}": _CLOSE}
_KINDS = bytes(_KIND_OF.get(chr(byte), 0) for byte in range(256))  # for bytes.translate
_STEPS = np.array([0, 0, 0, 1, -1], np.int8)  # by kind: how it changes the depth
_SPACE = b" \t\n\r"
_BRACES_TRIED = 3  # an element whose last members are objects needs more than one
_MANY_DIGITS = sys.int_info.default_max_str_digits // 2

Record = TypeVar("Record", bound=msgspec.Struct)


@dataclass(frozen=True)
class Block:
    """Whole elements of an array: the bytes `start` to `end` of the file; `first` if they follow the array's `[`."""

    path: Path
    start: int
    end: int
    first: bool

    def parse(self) -> list[Any]:
        """The elements. Raises DataError where the file is not JSON, OSError where it cannot be read."""
        # What is not first begins with a comma: behind a number it is checked like all else.
        text = self._bracketed(b"[" if self.first else b"[0 ")
        values = _loads(self.path, text, f" in the {self.end - self.start} bytes from byte {self.start}")
        return values if self.first else values[1:]

    def parse_as(self, kind: type[Record]) -> list[Record] | None:
        """The elements as `kind`, many times faster; None where only `parse` tells what they are or what is wrong.

        What `kind` has no field for is left out. Raises OSError where the file cannot be read.
        """
        text = self._bracketed(b"[" if self.first else b" ")
        if not self.first:
            comma = text.find(b",")
            if comma < 0 or text[:comma].strip(_SPACE):
                return None
            text[comma] = ord("[")
        if _may_have_long_number(text):
            return None
        try:
            if not text.isascii():
                text.decode("utf-8")  # msgspec does not look at the encoding of what is left out
            with _no_collection():
                return msgspec.json.decode(text, type=list[kind]) or None
        except (ValueError, RecursionError):
            return None

    def _bracketed(self, opening: bytes) -> bytearray:
        """The bytes of the file between `opening` and a closing bracket, read into place: copies of them take long."""
        text = bytearray(len(opening) + self.end - self.start + 1)
        text[: len(opening)], text[-1] = opening, ord("]")
        with self.path.open("rb") as file:
            file.seek(self.start)
            file.readinto(memoryview(text)[len(opening) : -1])
        return text


@dataclass(frozen=True)
class Outline:
    """A file whose JSON is an object.

    `arrays` holds the blocks of each value that is an array, in order; `keys` are all of the object's. `bytes`,
    `mtime_ns` and `sha256` (hexadecimal) are the file's.
    """

    bytes: int
    mtime_ns: int
    sha256: str
    keys: list[str]
    arrays: dict[str, list[Block]]


def outline(path: Path, block_bytes: int = BLOCK_BYTES) -> Outline:
    """Reads a file once, `block_bytes` at a time, and parses what is outside its object's arrays and objects.

    A block of an array is about `block_bytes` long, and longer where one element is. Raises DataError where the file is
    not the JSON of an object or changes while being read, OSError where it cannot be read. What is inside an array is
    checked when its blocks are parsed, what is inside an object of the object never.
    """
    scanner, digest, size_bytes, rest = _Scanner(), hashlib.sha256(), 0, b""
    with path.open("rb") as file, ThreadPoolExecutor(1) as beside:
        before = os.fstat(file.fileno())
        for block in _read(file, block_bytes):
            hashed = beside.submit(digest.update, block)
            rest = scanner.feed(size_bytes, rest, block)
            size_bytes += len(block)
            hashed.result()
        after = os.fstat(file.fileno())
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns) or size_bytes != after.st_size:
        raise DataError(f"{path} changed while it was read; start again when it is complete")
    if scanner.inside is not None:
        raise DataError(f"{path} is not JSON: it ends inside an array or object; copy or make it again")
    pairs = _loads(path, scanner.skeleton, "", object_pairs_hook=tuple)
    if not isinstance(pairs, tuple):
        raise DataError(
            f"{path} is not a COCO annotation file: it holds no JSON object; --data must name a prepared set"
        )
    found = {key: scanner.containers[value[0]] for key, value in pairs if isinstance(value, list)}
    arrays = {key: container.blocks(path) for key, container in found.items() if container.is_array}
    return Outline(size_bytes, after.st_mtime_ns, digest.hexdigest(), [key for key, _ in pairs], arrays)


@dataclass
class _Container:
    """An array or object directly below the document: offsets of its opening byte, its close and some element ends."""

    start: int
    is_array: bool
    end: int = 0
    cuts: list[int] = field(default_factory=list)

    def blocks(self, path: Path) -> list[Block]:
        edges = [self.start + 1, *self.cuts, self.end]
        return [Block(path, *span, first=i == 0) for i, span in enumerate(pairwise(edges))]


class _Scanner:
    """Follows strings and nesting through the blocks of a file.

    `skeleton` is the document without its containers; in the place of each stands `[number]`.
    """

    def __init__(self) -> None:
        self.skeleton = bytearray()
        self.containers: list[_Container] = []
        self.inside: _Container | None = None
        self._in_string = False
        self._depth = 0

    def feed(self, offset: int, rest: bytes, block: bytes) -> bytes:
        """Follows a block from `offset` of the file, behind the `rest` of the last one. Returns the rest of this one."""
        inside = self.inside
        follows_element = inside is not None and inside.is_array and inside.cuts[-1:] == [offset - len(rest)]
        whole = _whole_elements(rest, block) if follows_element else 0
        start, text = (offset + whole, block[whole:]) if whole else (offset - len(rest), rest + block)
        end = self._scan(start, text)
        if end is None and self.inside is inside and whole:
            end = start
        if self.inside is None or end is None:
            return b""
        self.inside.cuts.append(end)
        self._in_string, self._depth = False, 2
        return text[end - start :]

    def _scan(self, offset: int, block: bytes) -> int | None:
        """Follows each byte of a block. Returns where in the file the last element ends of what is then still open."""
        where, steps = self._brackets(block)
        depths = self._depth + np.cumsum(steps, dtype=np.int64)
        self._depth = int(depths[-1]) if len(depths) else self._depth
        copied = 0
        for edge in np.flatnonzero(((depths == 2) & (steps > 0)) | ((depths == 1) & (steps < 0))):
            at = int(where[edge])
            if steps[edge] > 0:
                self.skeleton += block[copied:at]
                self.inside = _Container(offset + at, block[at] == ord("["))
            elif self.inside is not None:
                self.inside.end = offset + at
                closed = block[at] == ord("]" if self.inside.is_array else "}")
                self.skeleton += b"[%d]" % len(self.containers) if closed else block[at : at + 1]
                self.containers.append(self.inside)
                self.inside = None
            copied = at + 1
        if self.inside is None:
            self.skeleton += block[copied:]
            return None
        ends = np.flatnonzero((steps < 0) & (depths == 2))
        end = offset + int(where[ends[-1]]) + 1 if len(ends) else 0
        return end if end > self.inside.start + 1 else None

    def _brackets(self, block: bytes) -> tuple[np.ndarray, np.ndarray]:
        """Where brackets and braces are that are not inside a string, and 1 for one that opens, -1 for one that closes."""
        kinds = np.frombuffer(bytearray(block.translate(_KINDS)), np.uint8)
        if b"\\" in block:
            escaped = _escaped(np.flatnonzero(kinds == _BACKSLASH))
            kinds[escaped[escaped < len(kinds)]] = 0
        where = np.flatnonzero(kinds != 0)
        kinds = kinds[where]
        in_string = np.bitwise_xor.accumulate(kinds == _QUOTE) ^ self._in_string
        self._in_string = bool(in_string[-1]) if len(in_string) else self._in_string
        bare = np.flatnonzero((kinds >= _OPEN) & ~in_string)
        return where[bare], _STEPS[kinds[bare]]


def _whole_elements(rest: bytes, block: bytes) -> int:
    """How many bytes of a block are, behind a rest that follows an element, surely whole elements; 0 where none.

    Bytes that make a list between brackets are. That is tried with all up to each of the last closing braces.
    """
    brace = len(block)
    for _ in range(_BRACES_TRIED):
        brace = block.rfind(b"}", 0, brace)
        if brace < 0:
            return 0
        try:
            msgspec.json.decode(b"".join((b"[0 ", rest, memoryview(block)[: brace + 1], b"]")), type=msgspec.Raw)
        except (msgspec.DecodeError, RecursionError):
            continue
        return brace + 1
    return 0


def _escaped(slashes: np.ndarray) -> np.ndarray:
    """The positions after an odd number of backslashes."""
    firsts = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)
    counts = np.diff(firsts, append=len(slashes))
    return (slashes[firsts] + counts)[counts % 2 == 1]


def _read(file: BinaryIO, block_bytes: int) -> Iterator[bytes]:
    """Blocks that do not end between a backslash and what it escapes."""
    while block := file.read(block_bytes):
        while block.endswith(b"\\") and (more := file.read(1)):
            block += more
        yield block


def _may_have_long_number(text: bytearray) -> bool:
    """Whether an integer may have more digits than Python reads: it has all of a piece of half as many bytes."""
    return any(text[at : at + _MANY_DIGITS].isdigit() for at in range(0, len(text), _MANY_DIGITS))


def _loads(path: Path, text: bytearray, where: str, **options: Any) -> Any:
    """`text` parsed. Raises DataError, which says `where` in the file it stands."""
    try:
        with _no_collection():
            return json.loads(text.decode("utf-8"), **options)
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not JSON: {error.msg}{where}; copy or make it again") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not JSON: it is not UTF-8{where}; copy or make it again") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON that can be read: {error}{where}; make it again") from error


@contextmanager
def _no_collection() -> Iterator[None]:
    """Python's garbage collector would look through all new objects again and again, and find nothing to free."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
