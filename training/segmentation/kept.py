"""What is worked out of a data set once: kept beside the data where it was prepared, else in each node's cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from training.common.errors import UserError
from training.data.files import building
from training.data.indexing.index_places import cache_entry, room_needed

T = TypeVar("T")

INDEX_FOLDER = "index"


def kept(
    name: str,
    root: Path,
    place: Path,
    load: Callable[[Path], T | None],
    make: Callable[[Path], None],
    say: Callable[[str], None],
    takes: str,
    beside: bool = False,
) -> T:
    """What `load` finds in a folder `name` of `root`/index, or of the cache's entry for `place`, where `make` makes it.

    `load` gives None for a folder that is not there, not whole or of other files. With `beside`, it is made in
    `root`/index, and OSErrors of writing there are raised as they are. `takes` says of how much room in the cache. Raises
    UserError.
    """
    prepared = root / INDEX_FOLDER / f"{place.name}-{name}"
    found = load(prepared)
    if found is not None:
        return found
    if beside:
        return _made(prepared, load, make, "check the disk of that folder")
    with cache_entry(place, say) as entry:
        found = load(entry / name)
        if found is not None:
            return found
        with room_needed(entry / name, place, takes):
            return _made(entry / name, load, make, "set SCALEOUT_CACHE_DIR to another folder")


def _made(folder: Path, load: Callable[[Path], T | None], make: Callable[[Path], None], advice: str) -> T:
    with building(folder) as partial:
        make(partial)
    found = load(folder)
    if found is None:
        raise UserError(f"{folder}: what was just written there cannot be read; {advice}")
    return found
