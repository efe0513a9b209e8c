"""What a verification found, for the reader: a table, a line of counts, and what to run again."""

from __future__ import annotations

import shlex
from pathlib import Path

from training.data.manifest import Generator
from training.data.verification.damage import NEEDLESS, Damages
from training.data.verification.subject import Subject

_ROWS = 100
_PATHS = 10
_SETTLED = ("noise",)  # settings that a program settles itself
_SOURCE_OPTIONS = {"convert.py": "--cityscapes", "prepare.py": "--cityscapes", "inflate.py": "--source"}


def table(damages: Damages) -> list[str]:
    """A row for each damage that is known in full, by shard, and one for those of a shard and kind that are counted."""
    rows = [(one.shard, _printable(one.path), f"{one.kind}: {one.detail}") for one in damages.kept]
    rows += [
        (shard, f"and {count:,} more", f"{kind}, of this shard")
        for (shard, kind), count in damages.only_counted().items()
    ]
    rows.sort(key=lambda row: row[0])
    shown = [("shard", "file", "what is wrong"), *rows[:_ROWS]]
    widths = [max(len(row[column]) for row in shown) for column in (0, 1)]
    lines = [f"{shard:{widths[0]}}  {path:{widths[1]}}  {what}" for shard, path, what in shown]
    return lines + ([f"and {len(rows) - _ROWS:,} more rows"] if len(rows) > _ROWS else [])


def counts(damages: Damages) -> str:
    """`damaged: 2 missing, 1 truncated in 2 shards`."""
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in damages.by_kind().items())
    return f"damaged: {kinds}; {len(damages.shards()):,} shards to make anew"


def what_to_run(subject: Subject, damages: Damages, verify: list[str], dropped: bool) -> list[str]:
    """The commands that mend the set, one a line, with words before them.

    `verify` is the command that found the damage, and `dropped` whether it also dropped the records.
    """
    lines = []
    needless = [one.path for one in damages.kept if one.kind in NEEDLESS]
    if needless:
        more = sum(damages.by_kind().get(kind, 0) for kind in NEEDLESS) - len(needless[:_PATHS])
        paths = shlex.join(_printable(str(subject.out / path)) for path in needless[:_PATHS])
        lines.append(f"to remove what is too much{f' ({more:,} more)' if more else ''}: rm -r -- {paths}")
    if damages.is_harm():
        if not dropped:
            lines.append(f"to forget what is damaged: {shlex.join([*verify, '--drop'])}")
        lines.append(f"to make it anew{'' if dropped else ', then'}: {_making(subject)}")
    return lines


def _printable(path: str) -> str:
    return path if path.isprintable() else ascii(path)


def _making(subject: Subject) -> str:
    if subject.manifest is None:
        return f"the command that made {subject.out}"
    generator = subject.manifest.generator
    option = _SOURCE_OPTIONS.get(Path(generator.program).name, "--source")
    command = ["python", generator.program, option, subject.manifest.source, "--out", str(subject.out)]
    return shlex.join(command + _options(generator))


def _options(generator: Generator) -> list[str]:
    options = []
    for name, value in generator.settings.items():
        if name in _SETTLED or value == "no":
            continue
        options += [f"--{name}"] if value == "yes" else [f"--{name}", value]
    return options
