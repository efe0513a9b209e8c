"""What was left out because its files cannot be used, and why: kept in the data set, so that later runs can tell."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from training.data.errors import DataError

BAD_IMAGE = "frames whose picture cannot be read"
BAD_TRUTH = "frames whose ground truth cannot be read"
OTHER_SIZE = "frames of another size than their ground truth"
OTHER_LABELS = "frames with labels that Cityscapes does not have"


@dataclass(frozen=True)
class Unusable:
    """A frame that is left out: why, and a sentence that says what is wrong with which file."""

    reason: str
    detail: str


def no_usable(source: Path, unusable: dict[str, list[str]]) -> DataError:
    """The error of a source of which all frames of train are left out."""
    reason, details = next(iter(unusable.items()))
    return DataError(f"{source}: no frame of train can be used; {len(details)} {reason}, the first {details[0]}")


def write_left_out(path: Path, sentences: dict[str, list[str]]) -> None:
    """Writes, by reason, a sentence for each frame that says what is wrong. Raises OSError."""
    path.write_text(json.dumps(sentences, indent=1) + "\n", encoding="utf-8")


def read_left_out(path: Path) -> dict[str, list[str]]:
    """By reason; empty where nothing was left out or nothing tells."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=dict[str, list[str]])
    return {}
