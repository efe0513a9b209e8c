"""The plan of an inflated set, OUT/plan.json: the first file of a set, and what tells later whose folder it is."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from training.data.errors import DataError
from training.data.manifest import MANIFEST_FILE, content_sha256
from training.wire.schema import WireError, from_dict, write_json

SCHEMA = 1
PLAN_FILE = "plan.json"


@dataclass(frozen=True)
class Plan:
    """Who makes what of which base set; `shards` are those left to make, `<split>/<shard>`.

    `noise` is in grey levels; `image_bytes` and `label_bytes` are the mean sizes to expect of a picture made anew, and of
    its labels. `content_sha256` is of all the rest, and set by `write_plan`; earlier versions had none.
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
    content_sha256: str = ""


class DamagedPlanError(DataError):
    """There is a plan, and it cannot be gone by."""


def read_plan(out: Path) -> Plan | None:
    """The plan of a set, None where there is none. Raises DamagedPlanError, and DataError for one of another version."""
    path = out / PLAN_FILE
    try:
        document = json.loads(path.read_bytes())
        if isinstance(document, dict) and isinstance(schema := document.get("schema"), int) and schema != SCHEMA:
            raise DataError(f"{path}: of schema {schema}, not {SCHEMA}; give another --out, or remove {out}")
        plan = from_dict(Plan, document, str(path))
        if plan.content_sha256 in ("", content_sha256(plan)):
            return plan
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, WireError):
        pass
    raise DamagedPlanError(
        f"{path}: is damaged, and no {MANIFEST_FILE} is there that says how the set was begun; put the file back, or remove "
        f"{out} and begin anew"
    )


def readable_plan(out: Path) -> Plan | None:
    """The plan of a set, None where there is none to go by."""
    with suppress(DataError):
        return read_plan(out)
    return None


def write_plan(out: Path, plan: Plan) -> None:
    """Writes a plan with the digest of its content. Raises OSError."""
    write_json(out / PLAN_FILE, replace(plan, content_sha256=content_sha256(plan)))
