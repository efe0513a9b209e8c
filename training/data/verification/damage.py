"""The kinds of damage that a data set can have, and one instance of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

MANIFEST = "manifest"
RECORD = "record"
MISSING = "missing"
TRUNCATED = "truncated"
SWAPPED = "swapped"
WRONG_SIZE = "wrong size"
ALTERED = "altered"
ALTERED_LABELS = "altered labels"
UNREADABLE = "unreadable"
EXTRA = "extra"
LEFTOVER = "leftover"

KINDS = (
    MANIFEST, RECORD, MISSING, TRUNCATED, SWAPPED, WRONG_SIZE, ALTERED, ALTERED_LABELS, UNREADABLE, EXTRA, LEFTOVER,
)  # fmt: skip
NEEDLESS = (EXTRA, LEFTOVER)  # what is too much, where nothing that belongs to the set is hurt

_KEPT_OF_A_KIND = 10


@dataclass(frozen=True)
class Damage:
    """What is wrong with a file. `shard` is `<split>/<name>`, or empty; `path` is below the data set's folder."""

    kind: str
    shard: str
    path: str
    detail: str


@dataclass
class Damages:
    """Damage found, counted by shard and kind; of a shard and kind only the first ten are kept in full."""

    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    kept: list[Damage] = field(default_factory=list)

    def add(self, kind: str, shard: str, path: str, detail: str) -> None:
        self.counts[shard, kind] += 1
        if self.counts[shard, kind] <= _KEPT_OF_A_KIND:
            self.kept.append(Damage(kind, shard, path, detail))

    def count(self, kind: str, shard: str, number: int) -> None:
        """Adds so many of which nothing more is known."""
        self.counts[shard, kind] += number

    def extend(self, others: Iterable[Damages]) -> None:
        """Takes over what was found of other shards."""
        for other in others:
            self.counts += other.counts
            self.kept += other.kept

    def __bool__(self) -> bool:
        return bool(self.counts)

    def by_kind(self) -> dict[str, int]:
        """How many of each kind that there is, in the order of KINDS."""
        totals: Counter[str] = Counter()
        for (_, kind), count in self.counts.items():
            totals[kind] += count
        return {kind: totals[kind] for kind in KINDS if totals[kind]}

    def is_harm(self) -> bool:
        """Whether something that belongs to the set is hurt, not only something too much."""
        return any(kind not in NEEDLESS for _, kind in self.counts)

    def shards(self) -> list[str]:
        """The shards that hold something which must be made anew."""
        return sorted({shard for shard, kind in self.counts if shard and kind not in NEEDLESS})

    def only_counted(self) -> Counter[tuple[str, str]]:
        """How many of each shard and kind are not kept."""
        return self.counts - Counter((damage.shard, damage.kind) for damage in self.kept)
