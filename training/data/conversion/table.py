"""What a conversion or a preparation read, kept and left out, and why: the table that it prints, and its warnings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from training.data.conversion.cityscapes import NOT_OURS, Split
from training.data.errors import DataError
from training.data.manifest import WORKLOAD, Manifest, SplitManifest
from training.data.names import shown

Unread = dict[str, dict[str, list[str]]]  # split, reason, a sentence for each frame

_NOTHING = SplitManifest(0, 0, 0, 0, None, None)


def check_has_train(splits: dict[str, Split], source: Path) -> None:
    """Raises DataError where no frame of train was found."""
    if not splits["train"].frames:
        why = _warnings(splits, {})[0]
        raise DataError(f"{source}: no frame of train has both a picture and ground truth; {why}")


def tell(manifest: Manifest, splits: dict[str, Split], unusable: Unread, not_read: dict[str, list[Path]]) -> list[str]:
    """Prints the table and the warnings, and gives the latter."""
    for line in _table(manifest, splits, unusable, not_read):
        print(line)
    warned = _warnings(splits, unusable)
    for warning in warned:
        print(f"warning: {warning}")
    return warned


def _table(
    manifest: Manifest, splits: dict[str, Split], unusable: Unread, not_read: dict[str, list[Path]]
) -> list[str]:
    """The lines: a column for each split, and behind what was left out its first example."""
    rows = {what: counts for what, counts in _frames_read(splits, manifest.workload).items() if any(counts)}
    held = [manifest.splits.get(name, _NOTHING) for name in splits]
    rows["frames kept"] = [split.images for split in held]
    if manifest.workload == WORKLOAD:
        rows["objects kept, groups included"] = [split.annotations for split in held]
    rows["MB of frames kept"] = [round(split.image_bytes / 1e6) for split in held]
    examples: dict[str, str] = {}
    for split, reason, found in _left_out(splits, unusable):
        what = f"left out: {reason}"
        examples.setdefault(what, f"   the first {found[0]}")
        rows.setdefault(what, [0] * len(splits))[list(splits).index(split)] = len(found)
    width = max(map(len, rows))
    lines = [f"{'':{width}}" + "".join(f"{name:>9}" for name in splits)]
    for what, counts in rows.items():
        lines.append(f"{what:{width}}" + "".join(f"{count:9}" for count in counts) + examples.get(what, ""))
    return lines + [
        f"not read: {len(paths)} {why}, the first {shown(str(paths[0]))}" for why, paths in not_read.items()
    ]


def _frames_read(splits: dict[str, Split], workload: str) -> dict[str, list[int]]:
    frames = [split.frames for split in splits.values()]
    ids = "instanceIds" if workload == WORKLOAD else "labelIds"
    return {
        "frames read": [len(of_split) for of_split in frames],
        f"  from {ids}": [sum(not frame.has_polygons for frame in of_split) for of_split in frames],
        "  from polygons": [sum(frame.has_polygons for frame in of_split) for of_split in frames],
        "  coarse": [sum(frame.is_coarse for frame in of_split) for of_split in frames],
    }


def _warnings(splits: dict[str, Split], unusable: Unread) -> list[str]:
    """A sentence for each reason for which frames of a split were left out, and for a split that has none."""
    found = []
    for name, split in splits.items():
        for where, reason, examples in _left_out(splits, unusable):
            if where == name and reason != NOT_OURS:
                found.append(f"{name}: {len(examples)} {reason} left out, the first {examples[0]}")
        if len(split.frames) == sum(map(len, unusable.get(name, {}).values())):
            found.append(f"{name}: no frames" + ("; validation has nothing to measure" if name == "val" else ""))
    return found


def _left_out(splits: dict[str, Split], unusable: Unread) -> Iterator[tuple[str, str, list[str]]]:
    """Split, reason, and what was left out: files, or sentences about frames."""
    for name, split in splits.items():
        yield from ((name, reason, [shown(str(path)) for path in paths]) for reason, paths in split.left_out.items())
        yield from ((name, reason, list(map(shown, sentences))) for reason, sentences in unusable.get(name, {}).items())
