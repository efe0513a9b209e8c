"""One COCO document, and its index, of those of the shards; memory holds a few shards at a time."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from training.data.files import atomic, building
from training.data.indexing.index_build import Index, build_part
from training.data.indexing.index_files import IndexWriter
from training.data.indexing.index_places import index_folder
from training.data.workers import map_ordered

_BUFFER_BYTES = 1 << 20
_INFO = b'{"info":{"description":"variants of the frames of a base set"},"licenses":[]'


class _Document(msgspec.Struct):
    """The document of a shard, whose elements are copied as they are."""

    images: list[msgspec.Raw]
    annotations: list[msgspec.Raw]
    categories: msgspec.Raw


@dataclass(frozen=True)
class _Part:
    images: bytes
    categories: bytes
    index: Index
    annotations: int


def join_documents(documents: Sequence[Path], path: Path, workers: int) -> int:
    """Makes `path` the document of all images and annotations of `documents`, in their order, and the index beside it.

    Documents are read twice: for the images and the index by `workers` processes, and for the annotations. Returns the
    number of annotations. Raises DataError for a document that is not one, OSError where files cannot be written.
    """
    count = 0
    with building(index_folder(path)) as folder, atomic(path) as partial, IndexWriter(folder) as index:
        sha256 = hashlib.sha256()
        with partial.open("wb", buffering=_BUFFER_BYTES) as file:

            def write(content: bytes) -> None:
                sha256.update(content)
                file.write(content)

            write(_INFO + b',"images":[')
            categories = b"[]"
            for number, part in enumerate(map_ordered(_read, documents, workers)):
                write(b"," * (number > 0) + part.images)
                index.append(part.index)
                categories, count = part.categories, count + part.annotations
            write(b'],"annotations":[')
            for number, annotations in enumerate(_annotations(documents)):
                write(b"," * (number > 0) + annotations)
            write(b'],"categories":' + categories + b"}\n")
            file.flush()
            os.fsync(file.fileno())
        status = partial.stat()
        index.finish(status.st_size, sha256.hexdigest(), status.st_mtime_ns)
    return count


def _read(path: Path) -> _Part:
    index, _ = build_part(path, workers=1)
    document = _decoded(path)
    images = b",".join(map(bytes, document.images))
    return _Part(images, bytes(document.categories), index, len(document.annotations))


def _annotations(documents: Sequence[Path]) -> Iterator[bytes]:
    """What is between the brackets of each document that has annotations."""
    for path in documents:
        if annotations := _decoded(path).annotations:
            yield b",".join(map(bytes, annotations))


def _decoded(path: Path) -> _Document:
    return msgspec.json.decode(path.read_bytes(), type=_Document)
