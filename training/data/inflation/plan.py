"""The plan of an inflated set, OUT/plan.json: the first file of a set, and what tells later whose folder it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training.data.errors import DataError
from training.wire.schema import WireError, read_json, write_json

SCHEMA = 1
PLAN_FILE = "plan.json"


@dataclass(frozen=True)
class Plan:
    """Who makes what of which base set; `shards` are those left to make, `<split>/<shard>`.

    `noise` is in grey levels; `image_bytes` and `label_bytes` are the mean sizes to expect of a picture made anew, and of
    its labels.
    """

    schema: int
    program: str
    version: int
    source_sha256: str
    settings: dict[str, str]
    noise: float
    image_bytes: float
    label_bytes: float
    shards: list[str]


def read_plan(out: Path) -> Plan | None:
    """The plan of a set, None where there is none. Raises DataError for one that cannot be used."""
    try:
        plan = read_json(Plan, out / PLAN_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except WireError as error:
        raise DataError(f"{error}; it is another version's: give another --out, or remove {out}") from error
    if plan.schema != SCHEMA:
        raise DataError(
            f"{out / PLAN_FILE}: of schema {plan.schema}, not {SCHEMA}; give another --out, or remove {out}"
        )
    return plan


def write_plan(out: Path, plan: Plan) -> None:
    write_json(out / PLAN_FILE, plan)
