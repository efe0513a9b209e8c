"""Names that become paths: no run id may leave the results folder or share it with another run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from training.wire.names import CACHE_MODES, TrialKey, slug
from training.wire.schema import WireError

RUN_IDS = st.text(max_size=300)
HOSTILE = st.text(alphabet="./\\-_:+~ \n\0aé0f<>", max_size=120)
WORKLOADS = st.from_regex(r"[a-z][a-z0-9_]{0,20}", fullmatch=True)
COUNTS = st.integers(min_value=1, max_value=10**6)
KEYS = st.builds(TrialKey, COUNTS, WORKLOADS, COUNTS, st.sampled_from(CACHE_MODES))
relaxed = settings(deadline=None)


@relaxed
@given(RUN_IDS | HOSTILE)
@example("")
@example("..")
@example("../../etc")
@example("a" * 101)
def test_a_slug_is_one_folder_name_inside_its_parent(run_id: str) -> None:
    name = slug(run_id)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name)
    assert ".." not in name
    assert (Path("/results") / name).resolve().parent == Path("/results")


@relaxed
@given(st.lists(RUN_IDS | HOSTILE, min_size=2, max_size=8, unique=True))
@example(["a:b", "a+b", "a/b", "a b", "a-b"])
@example(["", "run"])
@example(["x" * 200, "x" * 201, "x" * 100])
def test_distinct_run_ids_never_share_a_folder(run_ids: list[str]) -> None:
    assert len({slug(run_id) for run_id in run_ids}) == len(run_ids)


@relaxed
@given(RUN_IDS | HOSTILE)
@example("manual__2026-12-01T10:46:26+00:00")
def test_a_run_named_after_another_runs_folder_gets_a_folder_of_its_own(run_id: str) -> None:
    folder = slug(run_id)
    assert run_id == folder or slug(folder) != folder


def test_a_run_called_latest_does_not_take_the_place_of_the_link_to_the_last_sweep() -> None:
    assert slug("latest") != "latest"


@pytest.mark.parametrize("run_id", ["nightly", "run_1.b-c", "A", "a" * 100])
def test_a_safe_run_id_is_its_own_folder_name(run_id: str) -> None:
    assert slug(run_id) == run_id


def test_airflows_run_ids_stay_readable() -> None:
    assert slug("manual__2026-12-01T10:46:26.520612+00:00").startswith("manual__2026-12-01T10-46-26-520612-00-00-")


@relaxed
@given(KEYS, COUNTS)
def test_a_trials_folder_name_gives_its_key_and_try_back(key: TrialKey, attempt: int) -> None:
    assert TrialKey.parse(key.folder(attempt)) == (key, attempt)


def test_a_trials_folder_is_named_as_the_documentation_says() -> None:
    assert TrialKey(1, "ssd", 2, "cold").folder(1) == "ssd-n2-cold-r1-t1"
    assert str(TrialKey(1, "ssd", 2, "cold")) == "ssd on 2 nodes, cold, round 1"
    assert TrialKey(1, "ssd", 8, "warm", "gpus").folder(1) == "ssd-g8-warm-r1-t1"
    assert TrialKey.parse("ssd-p2-warm-r1-t3") == (TrialKey(1, "ssd", 2, "warm", "processes"), 3)
    assert str(TrialKey(1, "ssd", 8, "warm", "gpus")) == "ssd on 8 GPUs, warm, round 1"
    assert str(TrialKey(3, "ssd", 1, "warm")) == "ssd on 1 node, warm, round 3"


@pytest.mark.parametrize(
    "folder",
    [
        "",
        "ssd-n2-cold-r1",
        "ssd-n0-cold-r1-t1",
        "ssd-n2-cold-r0-t1",
        "ssd-n2-cold-r1-t0",
        "ssd-n02-cold-r1-t1",
        "ssd-n2-tepid-r1-t1",
        "SSD-n2-cold-r1-t1",
        "ssd-n2-cold-r1-t1\n",
        "../ssd-n2-cold-r1-t1",
        "ssd-n٢-cold-r1-t1",
        "prepare-ssd-t1",
    ],
)
def test_what_is_no_trial_folder_is_refused_by_name(folder: str) -> None:
    with pytest.raises(WireError, match="is not a trial folder"):
        TrialKey.parse(folder)


@pytest.mark.parametrize(
    "key", [TrialKey(0, "ssd", 1, "cold"), TrialKey(1, "../x", 1, "cold"), TrialKey(1, "ssd", -1, "cold")]
)
def test_a_key_that_could_not_be_read_back_makes_no_folder(key: TrialKey) -> None:
    with pytest.raises(WireError, match="is not a trial folder"):
        key.folder(1)
