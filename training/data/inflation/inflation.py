"""One inflation: which set is made of which, with what settings, and what is known of it already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from training.data.errors import DataError
from training.data.inflation.base import TRAIN, BaseSet, Frame, check_names, open_base
from training.data.inflation.labels import Labels
from training.data.inflation.layout import Shard, shards_of
from training.data.inflation.options import Options
from training.data.inflation.place import check_place
from training.data.inflation.plan import SCHEMA, DamagedPlanError, Plan, read_plan, readable_plan
from training.data.inflation.settings import NOISE, Settings, difference, from_text
from training.data.inflation.survey import recorded
from training.data.manifest import Generator, check_not_later, library_versions, read_manifest
from training.data.sizes import size_text

VERSION = 1  # one more whenever the same base set and settings give another result
_LIBRARIES = ("numpy", "pillow", "torch", "zlib-ng")


@dataclass(frozen=True)
class Inflation:
    """`shards` are those of train in the order of frames and variants, `carried` the keys of those taken as they are."""

    labels: Labels
    base: BaseSet
    out: Path
    settings: Settings
    frames: list[Frame]
    shards: list[Shard]
    carried: list[str]

    @property
    def images(self) -> int:
        return self.settings.factor * len(self.frames)

    @property
    def keys(self) -> list[str]:
        """`<split>/<shard>` of all shards."""
        return [*(f"{TRAIN}/{shard.name}" for shard in self.shards), *self.carried]

    def images_of(self, keys: list[str]) -> int:
        """How many images of train those shards have."""
        wanted = set(keys)
        return sum(shard.images for shard in self.shards if f"{TRAIN}/{shard.name}" in wanted)

    def generator(self, noise: float) -> Generator:
        settings = {**self.settings.as_text(), NOISE: repr(noise)}
        return Generator(self.labels.program, VERSION, settings, library_versions(*_LIBRARIES))

    def state(self) -> str:
        """`654 of 972,825 images are done, 972,171 (2.80 TB) are left`, by the plan and the records that are there."""
        plan, there = readable_plan(self.out), recorded(self.out)
        done = self.images_of([key for key in self.keys if key in there])
        left = self.images - done
        size = f" ({size_text(left * (plan.image_bytes + plan.label_bytes))})" if plan else ""
        return f"{done:,} of {self.images:,} images are done, {left:,}{size} are left"


def open_inflation(labels: Labels, options: Options) -> tuple[Inflation, Plan | None]:
    """What is asked for, and what is known of it from its plan or manifest. Raises DataError where they contradict."""
    known = _known(options.out, labels)
    base = open_base(options.source, labels.workload, labels.maker)
    check_place(options.out, options.source, known is not None)
    if known is None and options.phase in ("make", "finish"):
        raise DataError(f"{options.out}: has no plan; give --phase plan with --factor first, on one node")
    if "factor" in options.asked:
        settings = options.settings(labels.mean_mb)
    else:
        assert known is not None
        settings = from_text(known.settings)
    if known:
        _check_same(options.out, known, {**settings.as_text(), **options.asked}, base)
    if settings.method == "augment":
        labels.check(base)
    frames = labels.frames(base)
    check_names(frames, base.root)
    shards = shards_of([frame.name for frame in frames], settings.factor)
    carried = [f"{split}/{name}" for split, name in base.records if split != TRAIN and labels.is_carried(name)]
    return Inflation(labels, base, options.out, settings, frames, shards, carried), known


def _known(out: Path, labels: Labels) -> Plan | None:
    """The plan of the program's own set in a folder, or as much of one as its manifest tells."""
    check_not_later(out)
    try:
        plan = read_plan(out)
    except DamagedPlanError:
        if read_manifest(out, labels.workload) is None:
            raise
        plan = None
    if plan is not None:
        return plan if plan.program == labels.program else None
    manifest = read_manifest(out, labels.workload)
    if manifest is None or manifest.generator.program != labels.program:
        return None
    made, train = manifest.generator, manifest.splits[TRAIN]
    settings = {name: value for name, value in made.settings.items() if name != NOISE}
    return Plan(
        schema=SCHEMA,
        program=made.program,
        version=made.version,
        source_sha256=manifest.source_sha256,
        settings=settings,
        noise=float(made.settings[NOISE]),
        image_bytes=train.image_bytes / train.images,
        label_bytes=train.label_bytes / train.images,
        shards=[],
    )


def _check_same(out: Path, known: Plan, wanted: Mapping[str, str], base: BaseSet) -> None:
    what = difference(known.settings, wanted)
    if what is None and known.source_sha256 != base.sha256:
        what = f"another base set than what {base.root} is now"
    if what is None and known.version != VERSION:
        what = f"version {known.version} of this program, not {VERSION}"
    if what:
        raise DataError(f"{out}: was begun with {what}; give the same again, give another --out, or remove it")
