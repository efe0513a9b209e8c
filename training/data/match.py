"""Whether a data set is there already, as it would be made."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from training.data.manifest import MANIFEST_FILE, Generator, Manifest, read_manifest
from training.data.names import holds_pictures
from training.data.verification.damage import EXTRA, NEEDLESS
from training.data.verification.look_over import look_over

_SIZES_PER_FOLDER = 3


def matching_manifest(
    out: Path, workload: str, generator: Generator, source_sha256: str, workers: int, say: Callable[[str], None]
) -> Manifest | None:
    """The manifest of the data set in `out` where it need not be made, else None, and `say` gets a sentence why.

    It matches where the same program, of the same version and with the same settings, made it of the same source, and
    all its files are there by the listings of its folders, and of some by their sizes too, and no other pictures. Versions
    of libraries may differ. What only the content of files tells, and other strange files, are for `verify.py`. Raises
    DataError.
    """
    if not (out / MANIFEST_FILE).exists():
        return None
    manifest = read_manifest(out, workload)
    if manifest is None:
        say(f"{out / MANIFEST_FILE} is damaged, or of an earlier version without checksums")
        return None
    why = _other_making(manifest, generator, source_sha256) or _visible_damage(out, manifest, workers)
    if why:
        say(f"{out}: {why}")
    return None if why else manifest


def _other_making(manifest: Manifest, generator: Generator, source_sha256: str) -> str | None:
    made = manifest.generator
    if (made.program, made.version) != (generator.program, generator.version):
        return f"was made by version {made.version} of {made.program}, and this is {generator.version} of {generator.program}"
    for name in sorted(made.settings.keys() | generator.settings.keys()):
        was, now = made.settings.get(name, "none"), generator.settings.get(name, "none")
        if was != now:
            return f"was made with {name} {was}, and {now} is asked for"
    return "its source has changed" if manifest.source_sha256 != source_sha256 else None


def _visible_damage(out: Path, manifest: Manifest, workers: int) -> str | None:
    listings, damages = look_over(out, manifest.shards, _SIZES_PER_FOLDER, workers)
    for damage in damages.kept:
        if damage.kind not in NEEDLESS or (damage.kind == EXTRA and holds_pictures(out / damage.path)):
            return f"{damage.path} {damage.detail}"
    for listing in listings:
        if listing.resized:
            return f"a file of {listing.key} has another size than its record says"
    return None
