"""Under which cache state a trial's numbers were taken: proved, or unproven with every reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scaleout.analysis.rates import total
from training.wire.names import CacheMode

CacheState = Literal["cold", "warm", "unproven"]

MOST_RESIDENT = 0.01
LEAST_READ_WHEN_COLD = 0.90
MOST_READ_WHEN_WARM = 0.10


@dataclass(frozen=True)
class Verdict:
    """`reasons` are why the state is not proved; empty when it is."""

    state: CacheState
    reasons: list[str]


def judge(
    *,
    asked: CacheMode,
    caches: Mapping[str, Any] | None,
    nodes: Sequence[str],
    mounts: Mapping[str, Mapping[str, Any] | None],
    read_bytes: Mapping[str, int | None],
    distinct_bytes: Mapping[str, int | None],
    machines: Sequence[Sequence[str]],
) -> Verdict:
    """The cache state, from what was done before the launch and what was read during the trial.

    `machines` are the names of the nodes on each machine.

    `caches` is the record of `empty_caches` (null: it did not run). The byte counts are per node: of the first pass where
    cold was asked for, since re-reads of later passes would hide what a cache gave, else of the trial. Cold: the flush was
    acknowledged by every array node, caches were dropped on every node, no sample of files (images and masks apart) was
    resident, no FS-Cache lies under the mount, and each node fetched at least 90 % of the bytes of the distinct files that
    it consumed. Warm: each fetched at most 10 %. Nodes that share a machine share its page cache, and are judged together.
    """
    bound = {
        " and ".join(sharers): _fetched_share(
            total(map(read_bytes.get, sharers)), total(map(distinct_bytes.get, sharers))
        )
        for sharers in machines
    }
    reasons = [f"{node}: its counter of bytes read is not known" for node, share in bound.items() if share is None]
    shares = {node: share for node, share in bound.items() if share is not None}
    if asked == "warm":
        reasons += [
            f"{node} fetched {share:.0%} of the bytes that it consumed"
            for node, share in shares.items()
            if share > MOST_READ_WHEN_WARM
        ]
        return Verdict("unproven" if reasons else "warm", reasons)
    reasons += _before_launch(caches, nodes)
    reasons += [reason for node in nodes for reason in _of_mount(node, mounts.get(node))]
    reasons += [
        f"{node} fetched only {share:.0%} of the bytes of the files that it consumed: the rest came from a cache"
        for node, share in shares.items()
        if share < LEAST_READ_WHEN_COLD
    ]
    return Verdict("unproven" if reasons else "cold", reasons)


def _before_launch(caches: Mapping[str, Any] | None, nodes: Sequence[str]) -> list[str]:
    if caches is None:
        return ["no caches were emptied before this try"]
    reasons = []
    if not caches["flush"]["complete"]:
        reasons.append(f"array: {caches['flush']['reason']}")
    for node in nodes:
        if caches["dropped"].get(node) is None:
            reasons.append(f"{node}: its page cache was not dropped")
        reasons += [f"{node}: {reason}" for reason in _resident(caches["resident"].get(node))]
    return reasons


def _resident(resident: Mapping[str, Any] | None) -> list[str]:
    if resident is None:
        return ["residency is not known (not looked at)"]
    reasons = []
    for folder, sample in resident["folders"].items():
        if sample["resident_bytes"] is None:
            reasons.append(f"residency of {folder} is not known ({sample['reason']})")
        elif sample["resident_bytes"] > MOST_RESIDENT * sample["bytes"]:
            share = sample["resident_bytes"] / sample["bytes"]
            reasons.append(
                f"{share:.0%} of a sample of {sample['files']} files of {folder} was in memory after the drop"
            )
    return reasons


def _of_mount(node: str, mount: Mapping[str, Any] | None) -> list[str]:
    if mount is None:
        return [f"{node}: its mount is not known"]
    return [f"{node}: FS-Cache is on for {mount['point']}"] if "fsc" in mount["options"].split(",") else []


def _fetched_share(read: int | None, distinct: int | None) -> float | None:
    return None if read is None or not distinct else read / distinct
