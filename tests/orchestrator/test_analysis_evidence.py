"""`cold` and `warm` are proved or they are not: each single missing proof takes the state away and says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trials import MOUNT, Rank, cluster, created, edit_json, emptied, run_trial

from scaleout.analysis.row import Row
from scaleout.analysis.trial import row_of
from scaleout.results.remains import remains_of
from scaleout.results.store import CACHES_FILE, PREFLIGHT_FILE
from scaleout.steps.empty_caches import summed

COLD = {"read_bytes": (0, 100_000), "distinct_bytes": 100_000}
WARM = {"read_bytes": (0, 1_000), "distinct_bytes": 100_000}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEOUT_HOME", str(tmp_path))


def judged(
    mode: str,
    ranks: Any,
    spoil: Callable[[Path, Path], Any] = lambda caches, preflight: None,
    workload: str = "ssd",
) -> tuple[str, str | None]:
    """The state and its reasons for a trial of two nodes; `spoil` changes caches.json or preflight.json before."""
    store, sweep = created({"cache_modes": [mode], "workloads": [workload]}, cluster(2, processes_per_node=1))
    trial = sweep.trials[-1]
    folder = run_trial(store, trial, ranks)
    spoil(store.folder / folder / CACHES_FILE, store.folder / PREFLIGHT_FILE)
    row: Row = row_of(remains_of(store, sweep, trial, folder))
    assert row.status == "succeeded" and row.images_per_s == 20.0
    return row.cache_state, row.reasons.get("cache_state")


def test_with_every_proof_it_is_cold() -> None:
    assert judged("cold", Rank(**COLD)) == ("cold", None)


def caches(*keys: str, value: Any) -> Callable[[Path, Path], None]:
    return lambda caches, preflight: edit_json(caches, *keys, value=value)


def mount(value: Any) -> Callable[[Path, Path], None]:
    return lambda caches, preflight: edit_json(preflight, "nodes", "node2", "data_mount", value=value)


def resident(folder: str = "train2017", **changes: Any) -> Callable[[Path, Path], None]:
    """Changes node2's sample of a folder."""

    def spoil(caches_file: Path, preflight: Path) -> None:
        for key, value in changes.items():
            edit_json(caches_file, "resident", "node2", "folders", folder, key, value=value)

    return spoil


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda caches, preflight: caches.unlink(), "no caches were emptied before this try"),
        (
            caches("flush", value={"complete": False, "reason": "f3 did not answer"}),
            "array: f3 did not answer",
        ),
        (caches("dropped", "node2", value=None), "node2: its page cache was not dropped"),
        (caches("dropped", value={"node1": {"drop_s": 1}}), "node2: its page cache was not dropped"),
        (caches("resident", "node2", value=None), "node2: residency is not known (not looked at)"),
        (caches("resident", value=emptied(["node1"])["resident"]), "node2: residency is not known (not looked at)"),
        (
            resident(resident_bytes=None, reason="only root can"),
            "node2: residency of train2017 is not known (only root can)",
        ),
        (
            resident(resident_bytes=20),
            "node2: 2% of a sample of 32 files of train2017 was in memory after the drop",
        ),
        (mount(MOUNT | {"options": "rw,fsc,vers=4.1"}), "node2: FS-Cache is on for /mnt"),
        (mount(None), "node2: its mount is not known"),
        (
            lambda caches, preflight: edit_json(
                preflight, "nodes", value={"node1": {"boot_id": 1, "data_mount": MOUNT}}
            ),
            "node2: its mount is not known",
        ),
    ],
)
def test_one_missing_proof_and_it_is_unproven(spoil: Callable[[Path, Path], Any], reason: str) -> None:
    assert judged("cold", Rank(**COLD), spoil) == ("unproven", reason)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (
            Rank(read_bytes=(0, 89_000), distinct_bytes=100_000),
            "node2 fetched only 89% of the bytes of the files that it consumed: the rest came from a cache",
        ),
        (Rank(read_bytes=(0, 0)), "node2 fetched only 0% of the bytes of the files that it consumed: the rest came from a cache"),
        (Rank(read_bytes=(None, 5)), "node2: its counter of bytes read is not known"),
        (Rank(read_bytes=(5, None)), "node2: its counter of bytes read is not known"),
        (Rank(distinct_bytes=0), "node2: its counter of bytes read is not known"),
    ],
)  # fmt: skip
def test_a_node_that_read_from_a_cache_or_cannot_tell_is_unproven(second: Rank, reason: str) -> None:
    assert judged("cold", [Rank(**COLD), second]) == ("unproven", reason)


@pytest.mark.parametrize(
    "spoil",
    [
        resident(resident_bytes=10),
        mount(MOUNT | {"options": "rw,nofsc"}),
        mount(MOUNT | {"options": "rw,fsc_not=1"}),
    ],
)
def test_what_is_within_the_limits_stays_cold(spoil: Callable[[Path, Path], Any]) -> None:
    assert judged("cold", Rank(read_bytes=(0, 90_000), distinct_bytes=100_000), spoil) == ("cold", None)


def test_segmentation_is_cold_when_neither_images_nor_masks_were_in_memory() -> None:
    assert judged("cold", Rank(**COLD), workload="segmentation") == ("cold", None)


def test_masks_in_memory_are_not_lost_in_the_many_bytes_of_the_images() -> None:
    """Masks are a hundredth of the bytes: in the sum over both folders, all of them would be within the limit."""

    def spoil(caches_file: Path, preflight: Path) -> None:
        resident("leftImg8bit/train", bytes=100_000)(caches_file, preflight)
        resident("gtFine/train", resident_bytes=1000)(caches_file, preflight)

    assert judged("cold", Rank(**COLD), spoil, "segmentation") == (
        "unproven",
        "node2: 100% of a sample of 32 files of gtFine/train was in memory after the drop",
    )


def test_masks_that_could_not_be_looked_at_are_unproven() -> None:
    spoil = resident("gtFine/train", resident_bytes=None, reason="no files to look at")
    assert judged("cold", Rank(**COLD), spoil, "segmentation") == (
        "unproven",
        "node2: residency of gtFine/train is not known (no files to look at)",
    )


def test_the_sum_of_samples_is_not_known_where_one_of_them_is_not() -> None:
    known = {"files": 2, "bytes": 30, "resident_bytes": 4, "reason": None}
    unknown = {"files": 1, "bytes": 5, "resident_bytes": None, "reason": "only root can"}
    assert summed({"images": known, "masks": known}) == {
        "files": 4, "bytes": 60, "resident_bytes": 8, "reason": None, "folders": {"images": known, "masks": known},
    }  # fmt: skip
    found = summed({"images": known, "masks": unknown})
    assert (found["files"], found["bytes"], found["resident_bytes"], found["reason"]) == (3, 35, None, "only root can")


def test_re_reads_of_later_passes_do_not_hide_what_a_cache_gave_in_the_first() -> None:
    passes = ((0, 100, 10.0), (1, 100, 10.0))
    half_cached = Rank(
        windows=passes, read_bytes=(0, 100_000), pass_read_bytes=[50_000], distinct_bytes=100_000,
        first_pass_distinct_bytes=100_000,
    )  # fmt: skip
    state, reason = judged("cold", half_cached)
    assert state == "unproven" and "fetched only 50% of the bytes" in reason
    all_read = Rank(
        windows=passes, read_bytes=(0, 100_000), pass_read_bytes=[60_000], distinct_bytes=200_000,
        first_pass_distinct_bytes=60_000,
    )  # fmt: skip
    assert judged("cold", all_read) == ("cold", None)


def test_all_reasons_are_told_at_once() -> None:
    def spoil(caches_file: Path, preflight: Path) -> None:
        caches("flush", value={"complete": False, "reason": "no answer"})(caches_file, preflight)
        caches("dropped", "node1", value=None)(caches_file, preflight)

    state, reasons = judged("cold", [Rank(**COLD), Rank(read_bytes=(None, None))], spoil)
    assert state == "unproven"
    assert reasons == (
        "node2: its counter of bytes read is not known; array: no answer; node1: its page cache was not dropped"
    )


def test_warm_is_proved_by_what_was_not_fetched() -> None:
    assert judged("warm", Rank(**WARM)) == ("warm", None)
    assert judged("warm", Rank(read_bytes=(0, 10_000), distinct_bytes=100_000)) == ("warm", None)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (Rank(read_bytes=(0, 11_000), distinct_bytes=100_000), "node2 fetched 11% of the bytes that it consumed"),
        (Rank(**COLD), "node2 fetched 100% of the bytes that it consumed"),
        (Rank(read_bytes=(None, None)), "node2: its counter of bytes read is not known"),
    ],
)
def test_a_warm_trial_that_fetched_or_cannot_tell_is_unproven(second: Rank, reason: str) -> None:
    assert judged("warm", [Rank(**WARM), second]) == ("unproven", reason)


def test_the_evidence_stands_in_the_row() -> None:
    store, sweep = created({}, cluster(2, processes_per_node=1))
    trial = sweep.trials[-1]
    row = row_of(remains_of(store, sweep, trial, run_trial(store, trial, Rank(**COLD))))
    assert row.evidence["caches"] == emptied(["node1", "node2"])
    assert row.evidence["read_bytes"] == row.evidence["distinct_bytes"] == {"node1": 100_000, "node2": 100_000}
    assert row.evidence["data_mounts"] == {"node1": MOUNT, "node2": MOUNT}


@pytest.mark.parametrize(("fetched", "state"), [(70_000, "cold"), (40_000, "unproven")])
def test_nodes_on_one_machine_are_judged_together(fetched: int, state: str) -> None:
    """What one of them fetched the other finds in their page cache: 110,000 or 80,000 bytes of 120,000."""

    def share(caches: Path, preflight: Path) -> None:
        for node in ("node1", "node2"):
            edit_json(preflight, "nodes", node, "boot_id", value="the same")

    ranks = [
        Rank(read_bytes=(0, 40_000), distinct_bytes=60_000),
        Rank(read_bytes=(0, fetched), distinct_bytes=60_000),
    ]
    found, reasons = judged("cold", ranks, share)
    assert found == state
    assert reasons is None or "node1 and node2 fetched only 67% of the bytes" in reasons
