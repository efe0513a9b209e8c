"""What a conversion left out because its files cannot be used: kept in the data set, so that later runs can tell."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path

import msgspec

from training.data.manifest import ANNOTATIONS_FOLDER, split_folder


def left_out_file(split: str) -> str:
    """`annotations/left_out_train2017.json`: by reason, a sentence for each frame that says what is wrong."""
    return f"{ANNOTATIONS_FOLDER}/left_out_{split_folder(split)}.json"


def write_left_out(out: Path, split: str, sentences: dict[str, list[str]]) -> None:
    (out / left_out_file(split)).write_text(json.dumps(sentences, indent=1) + "\n", encoding="utf-8")


def read_left_out(out: Path, split: str) -> dict[str, list[str]]:
    """By reason; empty where nothing was left out or nothing tells."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode((out / left_out_file(split)).read_bytes(), type=dict[str, list[str]])
    return {}
