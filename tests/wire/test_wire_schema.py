"""JSON documents of the wire: what does not follow the schema is refused with the place and the key."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.wire.job import ExitStatus, Job, RankError, rank_folder
from training.wire.schema import WireError, from_dict, read_json, to_dict, write_json
from training.wire.telemetry import TelemetrySample


@dataclass(frozen=True)
class Part:
    name: str
    share: float | None


@dataclass(frozen=True)
class Whole:
    count: int
    parts: list[Part]
    state: Literal["on", "off"]
    seconds: dict[str, float]
    flag: bool = False
    notes: list[str] = field(default_factory=list)


GOOD: dict[str, Any] = {
    "count": 2,
    "parts": [{"name": "a", "share": 0.5}, {"name": "b", "share": None}],
    "state": "on",
    "seconds": {"first": 1.5},
}

TEXT = st.text(max_size=20)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NAMES = st.lists(TEXT, max_size=4)
JOBS = st.builds(
    Job,
    run_id=TEXT,
    trial=TEXT,
    node=TEXT,
    node_rank=st.integers(),
    nodes=NAMES,
    release=TEXT,
    command=NAMES,
    cwd=TEXT,
    environment=st.dictionaries(TEXT, TEXT, max_size=3),
    lease_s=FINITE,
    grace_s=FINITE,
    timeout_s=st.none() | FINITE,
    telemetry_interval_s=FINITE,
)
STATUSES = st.builds(
    ExitStatus,
    node=TEXT,
    state=st.sampled_from(["succeeded", "failed", "stopped", "lease_expired", "timed_out"]),
    exit_code=st.none() | st.integers(),
    signal=st.none() | st.integers(),
    reason=TEXT,
    started_wall_s=FINITE,
    ended_wall_s=FINITE,
    ended_processes=st.integers(),
    left_processes=st.integers(),
    rank_error=st.none() | st.builds(RankError, rank=st.integers(), t_wall_s=FINITE, error=TEXT),
    log_tail=NAMES,
)
SAMPLES = st.builds(
    TelemetrySample,
    t_wall_s=FINITE,
    interval_s=FINITE,
    cpu_util=st.none() | FINITE,
    memory_available_bytes=st.none() | st.integers(),
    network_received_bytes=st.none() | st.integers(),
    nfs_read_bytes=st.none() | st.integers(),
    gang_read_bytes=st.none() | st.integers(),
    gang_processes=st.integers(),
    gpu_util=st.none() | st.lists(FINITE, max_size=4),
    gpu_memory_bytes=st.none() | st.lists(st.integers(), max_size=4),
)


@settings(deadline=None)
@given(JOBS | STATUSES | SAMPLES)
def test_every_document_of_the_wire_survives_the_way_through_json(record: Any) -> None:
    assert from_dict(type(record), json.loads(json.dumps(to_dict(record))), "here") == record


def test_a_correct_document_becomes_its_record() -> None:
    whole = from_dict(Whole, GOOD, "here")
    assert whole.parts == [Part("a", 0.5), Part("b", None)]
    assert whole.flag is False and whole.notes == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"extra": 1}, "here: Whole has no key 'extra'"),
        ({"count": None}, "here: count: expected int, found NoneType None"),
        ({"count": "2"}, "here: count: expected int, found str '2'"),
        ({"count": True}, "here: count: expected int, found bool True"),
        ({"count": 2.0}, "here: count: expected int, found float 2.0"),
        ({"flag": 1}, "here: flag: expected bool, found int 1"),
        ({"parts": {}}, "here: parts: expected list, found dict {}"),
        ({"parts": [{"name": "a"}]}, "here: parts[0]: Part lacks the key 'share'"),
        ({"parts": [{"name": "a", "share": None, "x": 1}]}, "here: parts[0]: Part has no key 'x'"),
        ({"parts": ["a"]}, "here: parts[0]: expected an object for Part, found str"),
        ({"parts": [{"name": "a", "share": "1"}]}, "here: parts[0]: share: expected float, found str '1'"),
        ({"state": "dim"}, "here: state: 'dim' is none of 'on', 'off'"),
        ({"seconds": {"first": "1"}}, "here: seconds.first: expected float, found str '1'"),
        ({"notes": [1]}, "here: notes[0]: expected str, found int 1"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(WireError) as refused:
        from_dict(Whole, GOOD | changes, "here")
    assert str(refused.value) == complaint


@pytest.mark.parametrize("key", sorted(GOOD))
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(WireError, match=f"here: Whole lacks the key '{key}'"):
        from_dict(Whole, {k: v for k, v in GOOD.items() if k != key}, "here")


@pytest.mark.parametrize("document", [None, [], "x", 1])
def test_what_is_no_object_is_refused(document: Any) -> None:
    with pytest.raises(WireError, match="expected an object for Whole"):
        from_dict(Whole, document, "here")


def test_a_whole_number_will_do_for_a_float() -> None:
    share = from_dict(Part, {"name": "a", "share": 1}, "here").share
    assert share == 1.0 and type(share) is float


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_none_can_be_neither_written_nor_read(value: float, tmp_path: Path) -> None:
    with pytest.raises(WireError, match=r"Part\.share: .* is not a measurement"):
        to_dict(Part("a", value))
    path = tmp_path / "part.json"
    path.write_text(json.dumps({"name": "a", "share": value}))
    with pytest.raises(WireError, match="share"):
        read_json(Part, path)


def test_nan_deep_inside_is_found() -> None:
    with pytest.raises(WireError, match=r"Whole\.parts\[1\]\.share"):
        to_dict(Whole(1, [Part("a", 1.0), Part("b", float("nan"))], "on", {}))


def test_a_file_is_replaced_whole_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    write_json(path, Part("old", None))
    write_json(path, Part("new", 0.25))
    assert read_json(Part, path) == Part("new", 0.25)
    assert [entry.name for entry in tmp_path.iterdir()] == ["part.json"]


def test_a_record_that_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    write_json(path, Part("old", None))
    with pytest.raises(WireError):
        write_json(path, Part("new", float("nan")))
    assert read_json(Part, path) == Part("old", None)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"name": "a"'])
def test_a_damaged_file_is_refused_with_its_path(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "part.json"
    path.write_bytes(content)
    with pytest.raises(WireError, match=r"part\.json: not JSON"):
        read_json(Part, path)


def test_a_job_of_a_newer_writer_with_a_key_that_we_do_not_know_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text('{"run_id": "r", "priority": 1}')
    with pytest.raises(WireError, match="Job has no key 'priority'"):
        read_json(Job, path)


def test_ranks_have_folders_of_their_own() -> None:
    assert [rank_folder(rank) for rank in (0, 1, 10)] == ["rank0", "rank1", "rank10"]
